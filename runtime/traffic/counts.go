package traffic

import (
	"encoding/json"
	"math"

	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/sbxerr"
)

// Counts are what the entries of a sandbox come to, with those that are no longer
// kept.
type Counts struct {
	Allowed  uint64 `json:"allowed"` // connections that were carried
	Refused  uint64 `json:"refused"`
	Failed   uint64 `json:"failed"`
	Sent     uint64 `json:"sent"` // bytes
	Received uint64 `json:"received"`
	Answered uint64 `json:"answered"` // lookups
	Denied   uint64 `json:"denied"`
}

// add counts e. What came in from outside has no counter.
func (c *Counts) add(e Entry) {
	switch e.Kind {
	case Lookup:
		c.addLookup(e)
	case Connection, Linked, Packet:
		c.addConnection(e)
	}
}

func (c *Counts) addLookup(e Entry) {
	add(&c.Denied, e.Skipped)
	if e.Verdict == string(dns.Refused) {
		add(&c.Denied, 1)
		return
	}
	add(&c.Answered, 1)
}

func (c *Counts) addConnection(e Entry) {
	switch {
	case e.Verdict == string(proxy.Refused):
		add(&c.Refused, 1)
	case e.Verdict == string(proxy.Failed) || e.Address == "":
		add(&c.Failed, 1)
	default:
		add(&c.Allowed, 1)
	}
	add(&c.Refused, e.Skipped)
	add(&c.Sent, uint64(max(e.Sent, 0)))
	add(&c.Received, uint64(max(e.Received, 0)))
}

// add adds n, and stays at the most there can be: n may be a lie.
func add(to *uint64, n uint64) { *to += min(n, math.MaxUint64-*to) }

// line is one of a file: an entry, or as the first of a file that follows an older
// one, what all entries before it come to.
type line struct {
	Entry
	Before *Counts `json:"before,omitempty"`
}

// Counts returns what the entries of a sandbox come to.
func (l *Log) Counts(sandbox string) (Counts, error) {
	l.mu.Lock() // no rotation in between
	defer l.mu.Unlock()
	path := l.files.Entries(sandbox)
	if inode(path) == 0 { // the daemon ended while it put the older one aside
		path = Older(path)
	}
	c, err := count(path)
	return c, sbxerr.Wrap(sbxerr.StateDir, "traffic.counts", err)
}

func count(path string) (Counts, error) {
	var c Counts
	err := eachLine(path, 0, func(text []byte) {
		var l line
		switch err := json.Unmarshal(text, &l); {
		case err != nil:
		case l.Before != nil:
			c = *l.Before
		default:
			c.add(l.Entry)
		}
	})
	return c, err
}

// firstLine is that of the file at path, which is not there yet.
func firstLine(path string) ([]byte, error) {
	if inode(Older(path)) == 0 {
		return nil, nil
	}
	c, err := count(Older(path))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(struct {
		Before Counts `json:"before"`
	}{c})
	return append(text, '\n'), err
}
