package traffic

import (
	"math"
	"time"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
)

// Counts are what the entries of a sandbox come to, with those that are no longer
// kept.
type Counts struct {
	Allowed  uint64 `json:"allowed"` // connections that were carried, and are over
	Refused  uint64 `json:"refused"` // by the policy or a limit
	Failed   uint64 `json:"failed"`  // allowed, but the destination was not to be had
	Sent     uint64 `json:"sent"`    // bytes of connections that are over
	Received uint64 `json:"received"`
	Answered uint64 `json:"answered"` // lookups that got an address
	Denied   uint64 `json:"denied"`   // lookups that were refused, by the policy or a limit
}

// Attempted counts a connection, or a packet that was refused.
func (c *Counts) Attempted(a attempt.Attempt) { c.add(entryOfAttempt(a)) }

// Queried counts a lookup.
func (c *Counts) Queried(q lookup.Query) { c.add(entryOfQuery(q, time.Time{})) }

// Arrived counts the bytes of a connection from outside.
func (c *Counts) Arrived(a attempt.Arrival) { c.add(entryOfArrival(a)) }

// add counts e. Of what came in from outside, the bytes alone count.
func (c *Counts) add(e Entry) {
	switch e.Kind {
	case Lookup:
		c.addLookup(e)
	case Connection, Linked, Packet:
		c.addConnection(e)
	case Inbound:
		c.addBytes(e)
	}
}

func (c *Counts) addLookup(e Entry) {
	add(&c.Denied, e.Skipped)
	switch lookup.Verdict(e.Verdict) {
	case lookup.Refused:
		add(&c.Denied, 1)
	case lookup.Answered:
		add(&c.Answered, 1)
	}
}

func (c *Counts) addConnection(e Entry) {
	switch {
	case e.Verdict == string(attempt.Refused):
		add(&c.Refused, 1)
	case e.Verdict == string(attempt.Failed) || e.Address == "":
		add(&c.Failed, 1)
	default:
		add(&c.Allowed, 1)
	}
	add(&c.Refused, e.Skipped)
	c.addBytes(e)
}

func (c *Counts) addBytes(e Entry) {
	add(&c.Sent, uint64(max(e.Sent, 0)))
	add(&c.Received, uint64(max(e.Received, 0)))
}

// add adds n, and stays at the most there can be: n may be a lie.
func add(to *uint64, n uint64) { *to += min(n, math.MaxUint64-*to) }

// plus is c and what d comes to.
func (c Counts) plus(d Counts) Counts {
	for _, sum := range []struct {
		to *uint64
		n  uint64
	}{
		{&c.Allowed, d.Allowed}, {&c.Refused, d.Refused}, {&c.Failed, d.Failed}, {&c.Sent, d.Sent},
		{&c.Received, d.Received}, {&c.Answered, d.Answered}, {&c.Denied, d.Denied},
	} {
		add(sum.to, sum.n)
	}
	return c
}
