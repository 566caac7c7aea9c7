package runtime

import (
	"cmp"
	"context"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/learn"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Learned is the smallest policy that would have allowed what a command, or a sandbox
// so far, reached.
type Learned = learn.Policy

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

func (s *sandbox) learning() *learn.Learner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.learner
}

// finish returns what the sandbox of r reached. counted are its counters; nil if there are none.
func finish(l *learn.Learner, r record, counted *EgressCounters) *Learned {
	var without learn.Unrecorded
	if counted != nil {
		without = learn.Unrecorded{Lost: counted.Lost, Open: counted.Open}
	}
	return l.Finish(func(missed []traffic.Entry) error { return addNeeds(r, missed) }, without)
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
	out := finish(l, s.kept(), counted)
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
	return finish(learn.New(m.opts.Traffic, s.id), r, m.egressOf(r)), nil
}
