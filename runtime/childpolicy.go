package runtime

import (
	"context"
	"errors"
	"reflect"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// This file keeps the policy of a child within that of its parent. It follows from the
// parent's policy in force and the child's own request (record.Asked):
//
//   - A parent's policy is in its record before its children are looked for, and a child is
//     known before its policy follows for the first time. So each child sees each change.
//   - Nobody holds the changing of two sandboxes.

// parentNetwork returns the network that children of the sandbox id can have a part of.
func (m *Manager) parentNetwork(id string) (plan.ParentNetwork, error) {
	m.mu.Lock()
	s := m.sandboxes[id]
	m.mu.Unlock()
	if s == nil || s.isOver() {
		return plan.ParentNetwork{}, sbxerr.New(sbxerr.Canceled, "runtime.nested", "%w", errParentEnded)
	}
	r := s.kept()
	n := plan.ParentNetwork{Mode: r.Network, Policy: r.Policy}
	if above := r.above(); len(above) > 0 { // all have the routes of the topmost one
		if s = m.byID(above[len(above)-1]); s == nil {
			return n, nil
		}
		r = s.kept()
	}
	n.Clients = m.opts.Network.ClientsOf(m.profileOf(r).Network, r.Asked.Routes)
	return n, nil
}

// parentOf is parentNetwork for a sandbox that is made under g; nil for one that is no child.
func (m *Manager) parentOf(g peer.Grant) (*plan.ParentNetwork, error) {
	if g.Parent() == "" {
		return nil, nil
	}
	n, err := m.parentNetwork(g.Parent())
	return &n, err
}

// narrowed is the policy that a child with the record r has now. refused names the rules of
// its own that its parent does not cover.
func (m *Manager) narrowed(r record) (spec policy.Spec, refused, err error) {
	parent, err := m.parentNetwork(r.Parent)
	if err != nil {
		return policy.Spec{}, nil, err
	}
	return parent.Narrow(r.Asked)
}

// changeChild is the record of a child with the network that it asks for since r. Rules that
// it named before and its parent no longer covers are in nobody's way.
func (m *Manager) changeChild(rec record, r UpdateRequest) (record, error) {
	parent, err := m.parentNetwork(rec.Parent)
	if err != nil {
		return record{}, err
	}
	if r.Allow == nil && r.Network == nil {
		rec.Policy, _, err = parent.Narrow(rec.Asked)
		return rec, err
	}
	if r.Allow != nil { // also where it names no rule: nothing is allowed then
		rec.Asked.Allow = append([]string{}, r.Allow.Rules...)
	}
	rec.Network, rec.Policy, err = parent.NetworkOf(rec.Asked)
	return rec, err
}

// follows reports whether the policy of a sandbox follows its parent's.
func (r record) follows() bool { return r.Parent != "" && r.Network == netns.ModeAllow }

// beginFollowing has the policy of a child that is being made follow its parent's, which may have
// changed since the child was planned. The gateway serves the child by now.
func (m *Manager) beginFollowing(ctx context.Context, s *sandbox) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.following = true
	_, err := m.follow(ctx, s)
	return err
}

// followBelow has the policies of all sandboxes below s follow, top down, after that of s
// changed. A child whose policy cannot follow is cut off and ended. The error is why one
// that could has no record in the audit log.
func (m *Manager) followBelow(ctx context.Context, s *sandbox) error {
	if s.kept().Nested == nil {
		return nil
	}
	var errs []error
	for _, child := range m.all() {
		if child.kept().Parent == s.id {
			errs = append(errs, m.followAgain(ctx, child), m.followBelow(ctx, child))
		}
	}
	return errors.Join(errs...)
}

// followAgain is followBelow for one child.
func (m *Manager) followAgain(ctx context.Context, s *sandbox) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.following || s.isOver() { // one that is being made does it itself
		return nil
	}
	changed, err := m.follow(ctx, s)
	switch {
	case errors.Is(err, errParentEnded): // and it ends too, unless both are left to the next daemon
		return nil
	case err != nil:
		m.cutOff(ctx, s, err)
		return nil
	case !changed:
		return nil
	}
	m.keepRecord(s)
	return m.confirmUpdate(ctx, s)
}

// follow puts the policy in force that s has by its parent's, and reports whether it had
// another. s.changing is held.
func (m *Manager) follow(ctx context.Context, s *sandbox) (changed bool, err error) {
	r := s.kept()
	if !r.follows() {
		return false, nil
	}
	spec, refused, err := m.narrowed(r)
	if err != nil || reflect.DeepEqual(spec, r.Policy) {
		return false, err
	}
	if err := failpoint.At("child/policy"); err != nil {
		return false, err
	}
	if err := m.setPolicy(ctx, s, r.Policy, spec); err != nil {
		return false, err
	}
	if refused != nil {
		m.log.Info("leave out rules of a child that its parent's policy does not cover", "sandbox", s.id, "err", refused)
	}
	s.update(func() { s.record.Policy, s.digest, s.stale = spec, "", true })
	return true, nil
}

// cutOff ends a child and closes its connections at once.
func (h *host) cutOff(ctx context.Context, s *sandbox, reason error) {
	if s.endCause() == nil {
		h.log.Error("end a child whose policy cannot follow its parent's", "sandbox", s.id, "err", reason)
	}
	s.end(reason)
	if err := h.opts.Egress.Remove(ctx, s.id); err != nil {
		h.log.Error("cut off a child", "sandbox", s.id, "err", err)
	}
}
