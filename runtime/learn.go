package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Learned is the smallest policy that would have allowed what a command, or a sandbox
// so far, reached.
type Learned struct {
	Rules    []string `json:"rules"`    // sorted
	Warnings []string `json:"warnings"` // what it may not cover
}

// opened is r in the network mode open, in which there is something to learn.
// What it denies is denied, and what it allows may be private.
func opened(r plan.Request, profiles map[string]plan.Profile) (plan.Request, error) {
	mode := netns.Mode(cmp.Or(r.Create.Network, profiles[cmp.Or(r.Create.Profile, plan.DefaultProfile)].Network.Mode))
	switch {
	case r.Create.Network != "" && mode != netns.ModeOpen:
		return r, sbxerr.WithRemedy(sbxerr.Config, "runtime.learn",
			fmt.Errorf("a policy is learnt in the network mode %q, not %q", netns.ModeOpen, mode), "leave the mode away")
	case mode != netns.ModeOpen: // else it is the profile's, which needs no grant
		r.Create.Network = string(netns.ModeOpen)
	}
	if r.Create.Site = r.LearnPrivate; r.Create.Site {
		r.Create.Network = string(netns.ModeOpen) // needs a grant, also where the mode is the profile's
	}
	return r, nil
}

// maxLearned bounds the destinations that are kept of one command.
const maxLearned = 4096

// maxMissed bounds the destinations that are told of.
const maxMissed = 16

// learner collects what a sandbox reaches while it does: its log keeps the last
// entries only.
type learner struct {
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

func newLearner(log *traffic.Log, sandbox string) *learner {
	return &learner{log: log, sandbox: sandbox, cancel: func() {}, seen: map[policy.Seen]bool{}}
}

// start has l read along until it is stopped.
func (l *learner) start() {
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	l.done.Go(func() { l.follow(ctx) })
}

// follow reads what is logged until ctx ends.
func (l *learner) follow(ctx context.Context) {
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

func (l *learner) read() {
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
func (l *learner) miss(e traffic.Entry) {
	switch {
	case !e.Missed() || slices.ContainsFunc(l.missed, e.SameDestination):
	case len(l.missed) == maxMissed:
		l.moreMissed = true
	default:
		l.missed = append(l.missed, e)
	}
}

// stop ends what goes on, of which there is nothing in a nil learner.
func (l *learner) stop() {
	if l != nil {
		l.cancel()
		l.done.Wait()
	}
}

// finish reads the last entries and returns what the sandbox of rec reached. counted are the
// sandbox's counters; nil if there are none.
func (l *learner) finish(rec record, counted *EgressCounters) *Learned {
	l.stop()
	l.read()
	rules, err := policy.Learn(slices.Collect(maps.Keys(l.seen)))
	out := &Learned{Rules: rules, Warnings: append(reasons(err), l.misses(rec)...)}
	if l.err != nil {
		out.Warnings = append(out.Warnings, "not all that it reached is known: "+l.err.Error())
	}
	out.Warnings = append(out.Warnings, counted.unrecorded()...)
	if l.gone {
		out.Warnings = append(out.Warnings, "the oldest connections are no longer kept: what they alone reached is not allowed")
	}
	if l.more {
		out.Warnings = append(out.Warnings, fmt.Sprintf("it reached more than %d destinations: the rest is not allowed", maxLearned))
	}
	return out
}

// misses returns a warning for each destination that was not reached: it gives no rule.
func (l *learner) misses(rec record) (warnings []string) {
	if err := addNeeds(rec, l.missed); err != nil {
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

// unrecorded warns of connections that have no entry.
func (c *EgressCounters) unrecorded() (warnings []string) {
	switch {
	case c == nil:
		return nil
	case c.Lost > 0:
		warnings = append(warnings, fmt.Sprintf("%d attempts have no record: what they reached is not allowed", c.Lost))
	}
	if c.Open > 0 {
		warnings = append(warnings, fmt.Sprintf("%d connections are open, and have their record when they end: what they alone reached is not allowed", c.Open))
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

func (s *sandbox) learning() *learner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.learner
}

// learned ends what the sandbox has to do with the gateway, so that every
// connection has its record, and says what its command reached. It is nil where
// nobody wants to know.
func (h *host) learned(ctx context.Context, s *sandbox, counted *EgressCounters) *Learned {
	l := s.learning()
	if l == nil {
		return nil
	}
	err := h.opts.Egress.Remove(ctx, s.id)
	if counted != nil {
		counted.Open = 0 // it ended them
	}
	out := l.finish(s.kept(), counted)
	if err != nil {
		out.Warnings = append(out.Warnings, "not all that it reached is known: "+err.Error())
	}
	return out
}

// LearnPolicy says what a sandbox reached so far. A connection that is open has no
// record yet.
func (m *Manager) LearnPolicy(ctx context.Context, ref string) (*Learned, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	r := s.kept()
	if m.opts.Traffic == nil {
		return &Learned{Rules: []string{}, Warnings: []string{}}, nil
	}
	if counts(r.Network) {
		_ = m.refreshEgress(ctx, r.ID) // it is logged
	}
	return newLearner(m.opts.Traffic, s.id).finish(r, m.egressOf(r)), nil
}
