// Package learn finds the smallest egress policy for what a sandbox reached.
package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Policy is the smallest policy that would have allowed what a command, or a sandbox
// so far, reached.
type Policy struct {
	Rules    []string `json:"rules"`    // sorted
	Warnings []string `json:"warnings"` // what it may not cover
}

// maxLearned bounds the destinations that are kept of one command.
const maxLearned = 4096

// maxMissed bounds the destinations that are told of.
const maxMissed = 16

// Learner collects what a sandbox reaches while it does: its log keeps the last
// entries only.
type Learner struct {
	log     *traffic.Log
	sandbox string
	cancel  context.CancelFunc
	done    sync.WaitGroup

	cursor     traffic.Cursor
	seen       map[policy.Seen]bool
	missed     []traffic.Entry // one for each destination that was refused, or could not be reached
	moreMissed bool            // there were more than maxMissed
	more       bool            // there were more than maxLearned
	gone       bool            // entries were dropped before they were read
	err        error
}

// New returns a Learner of a sandbox's log.
func New(log *traffic.Log, sandbox string) *Learner {
	return &Learner{log: log, sandbox: sandbox, cancel: func() {}, seen: map[policy.Seen]bool{}}
}

// Start has l read along until it is stopped.
func (l *Learner) Start() {
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	l.done.Go(func() { l.follow(ctx) })
}

// follow reads what is logged until ctx ends.
func (l *Learner) follow(ctx context.Context) {
	for {
		next := l.log.Next(l.sandbox) // before it is looked at
		l.read()
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Learner) read() {
	entries, gone, err := l.log.Entries(l.sandbox, &l.cursor)
	l.err = cmp.Or(l.err, err)
	l.gone = l.gone || gone.Reached
	for _, e := range entries {
		l.miss(e)
		s, ok := e.Seen()
		switch {
		case !ok || l.seen[s]:
		case len(l.seen) >= maxLearned:
			l.more = true
		default:
			l.seen[s] = true
		}
	}
}

// miss notes a destination that was not reached, the first time.
func (l *Learner) miss(e traffic.Entry) {
	switch {
	case !e.Missed() || slices.ContainsFunc(l.missed, e.SameDestination):
	case len(l.missed) == maxMissed:
		l.moreMissed = true
	default:
		l.missed = append(l.missed, e)
	}
}

// Stop ends what goes on, of which there is nothing in a nil Learner.
func (l *Learner) Stop() {
	if l != nil {
		l.cancel()
		l.done.Wait()
	}
}

// Unrecorded are connections that have no entry.
type Unrecorded struct {
	Lost int64 // attempts of which nothing is known
	Open int64 // that go on, and have their entry when they end
}

// Finish reads the last entries and returns what the sandbox reached. needs adds to entries that
// were refused the rules that would allow them.
func (l *Learner) Finish(needs func([]traffic.Entry) error, without Unrecorded) *Policy {
	l.Stop()
	l.read()
	rules, err := policy.Learn(slices.Collect(maps.Keys(l.seen)))
	out := &Policy{Rules: rules, Warnings: append(reasons(err), l.misses(needs)...)}
	if l.err != nil {
		out.Warnings = append(out.Warnings, "not all that it reached is known: "+l.err.Error())
	}
	out.Warnings = append(out.Warnings, without.warnings()...)
	if l.gone {
		out.Warnings = append(out.Warnings, "the oldest connections are no longer kept: what they alone reached is not allowed")
	}
	if l.more {
		out.Warnings = append(out.Warnings, fmt.Sprintf("it reached more than %d destinations: the rest is not allowed", maxLearned))
	}
	return out
}

// misses returns a warning for each destination that was not reached: it gives no rule.
func (l *Learner) misses(needs func([]traffic.Entry) error) (warnings []string) {
	if err := needs(l.missed); err != nil {
		warnings = append(warnings, "not all that it needs is known: "+err.Error())
	}
	for _, e := range l.missed {
		if e.Verdict == string(attempt.Refused) && e.Needs != "" {
			warnings = append(warnings, fmt.Sprintf("%s was refused: where it is wanted, learn again with --allow %s", e.Destination(), e.Needs))
		} else {
			warnings = append(warnings, fmt.Sprintf("%s was not reached: %s", e.Destination(), e.Reason))
		}
	}
	if l.moreMissed {
		warnings = append(warnings, "further destinations were not reached: the log of the network names them (caisson policy log SANDBOX)")
	}
	return warnings
}

func (u Unrecorded) warnings() (warnings []string) {
	if u.Lost > 0 {
		warnings = append(warnings, fmt.Sprintf("%d attempts have no record: what they reached is not allowed", u.Lost))
	}
	if u.Open > 0 {
		warnings = append(warnings, fmt.Sprintf("%d connections are open, and have their record when they end: what they alone reached is not allowed", u.Open))
	}
	return warnings
}

// reasons are the lines of an error that was joined of several.
func reasons(err error) []string {
	var several interface{ Unwrap() []error }
	switch {
	case err == nil:
		return []string{}
	case !errors.As(err, &several):
		return []string{err.Error()}
	}
	texts := []string{}
	for _, e := range several.Unwrap() {
		texts = append(texts, e.Error())
	}
	return texts
}
