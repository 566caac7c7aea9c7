package runtime

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Egress carries what sandboxes send to where their policies let it go.
// runtime/egress implements it with the process caisson-gateway.
type Egress interface {
	// Add serves a sandbox on sockets of its namespace, which are taken over also
	// on an error.
	Add(ctx context.Context, s egress.Sandbox, by netns.Sockets) error
	// Watch records the refused packets of a sandbox of the mode bridge, which come on a
	// socket of its namespace. That is taken over also on an error.
	Watch(ctx context.Context, id string, before traffic.Counts, log *os.File) error
	// SetPolicy returns when the policy is in force, and what it does not allow
	// is cut. On an error the old one stays.
	SetPolicy(ctx context.Context, id string, p policy.Spec) error
	// SetBill has the requests of a sandbox by routes counted in other accounts.
	SetBill(ctx context.Context, id string, b budget.Bill) error
	// Publish accepts connections for a sandbox on listeners of the host, whether it
	// was added or not.
	Publish(ctx context.Context, p egress.Published) error
	// Admit has others connect to the published ports of a sandbox. On an error the old ones stay.
	Admit(ctx context.Context, id string, clients [][]netip.Prefix) error
	// Remove ends the serving of a sandbox. Absent is success.
	Remove(ctx context.Context, id string) error
	// View returns what went through for a sandbox since Add, as far as that was told,
	// and why it is not served if so; false for one that is not there. It asks nobody.
	View(id string) (egress.View, bool)
	// Refresh returns when all was told that happened to a sandbox before, or to all for an
	// empty id, or ctx ends. The code is sbxerr.EgressBusy when it was too much to wait for.
	Refresh(ctx context.Context, id string) error
}

// redirectFor is the redirect that s needs, which only a gateway serves.
func (h *host) redirectFor(s *sandbox) (*netns.Redirect, error) {
	redirect, err := redirectOf(s.kept().Policy)
	if err == nil && redirect != nil && h.opts.Egress == nil {
		err = sbxerr.New(sbxerr.Gateway, "runtime.egress", "this daemon has no gateway")
	}
	return redirect, err
}

// createEgress waits for the way out of a sandbox, and hands its ports to the gateway.
func (h *host) createEgress(ctx context.Context, s *sandbox) error {
	if err := s.network.Wait(); err != nil {
		return err
	}
	return errors.Join(h.watchLink(ctx, s), h.servePorts(ctx, s, s.kept().Exposed))
}

// installRedirect opens the one way out of a sandbox. Each name has the address that it had
// with an earlier daemon, and what was counted there counts on.
func (h *host) installRedirect(ctx context.Context, s *sandbox, redirect netns.Redirect) error {
	names, namesErr := h.opts.Traffic.Names(s.id)
	before, countsErr := h.opts.Traffic.Counts(s.id)
	if err := errors.Join(namesErr, countsErr); err != nil {
		return err
	}
	sockets, err := netns.InstallRedirect(h.paths.netns(s.id), redirect)
	if err != nil {
		return err
	}
	r := s.kept()
	about := r.aboutSpending()
	h.opts.Spending.Begin(about)
	return h.opts.Egress.Add(ctx, egress.Sandbox{ID: s.id, Policy: r.Policy, Names: names, Before: before, Bill: about.Bill}, *sockets)
}

// adoptEgress opens the way out of a sandbox of an earlier daemon again, by the
// policy that it had and the operator's word of now.
func (m *Manager) adoptEgress(ctx context.Context, s *sandbox) error {
	r := s.kept()
	switch r.Network {
	case plan.HostNetwork:
		return nil
	case netns.ModeNone:
		before := m.unrouted(s.id)[s.id].refused()
		s.update(func() { s.refused = before })
		return nil
	case netns.ModeBridge:
		if err := m.watchLink(ctx, s); err != nil {
			return err // a link that nobody adopts is removed, so that no refusal is without a record
		}
		return m.relink(s)
	}
	spec, err := m.adoptPolicy(r)
	if err != nil {
		return err
	}
	s.update(func() { s.record.Network, s.record.Policy, s.digest = netns.Mode(spec.Mode), spec, "" })
	redirect, err := m.redirectFor(s)
	if err != nil || redirect == nil {
		return err
	}
	mended, err := netns.Program(m.paths.netns(s.id))
	if err != nil {
		return err
	}
	if len(mended) > 0 {
		m.log.Warn("somebody changed the rules of a sandbox's network namespace; they are as they were", "sandbox", r.ID, "code", sbxerr.Posture, "found", mended)
	}
	return m.installRedirect(ctx, s, *redirect)
}

// adoptPolicy is the policy of a sandbox of an earlier daemon by the operator's word of now. A
// child has a part of its parent's, and nothing where that ended: it is about to end too.
func (m *Manager) adoptPolicy(r record) (policy.Spec, error) {
	var spec policy.Spec
	var refused error
	if r.follows() {
		var err error
		spec, refused, err = m.narrowed(r)
		switch {
		case errors.Is(err, errParentEnded):
			spec.Mode = policy.Allow
		case err != nil:
			return policy.Spec{}, err
		}
	} else {
		n := m.settings().Profiles[r.Profile].Network
		spec, refused = n.Routed(m.opts.Network.Over(r.Policy, n.Map), r.Asked.Routes).Kept()
	}
	if refused != nil {
		m.log.Warn("leave out rules that are no longer taken", "sandbox", r.ID, "err", refused)
	}
	if len(spec.Resolvers) < len(r.Policy.Resolvers) {
		m.log.Warn("leave out resolvers that the operator no longer allows", "sandbox", r.ID, "had", r.Policy.Resolvers, "has", spec.Resolvers)
	}
	return spec, nil
}

// updateEgress puts the policy in force that s becomes. It comes late in the list, since the
// connections that a narrower policy cuts do not come back with the policy. A sandbox of the
// pool gets its ports, and the policy that its parent allows by now.
func (m *Manager) updateEgress(ctx context.Context, s *sandbox, c *change) (undo func() error, err error) {
	if c.plan == nil {
		return m.setReach(ctx, s, c.from, c.to)
	}
	if c.to.follows() {
		if c.to.Policy, _, err = m.narrowed(c.to); err != nil {
			return nil, err
		}
	}
	if err := m.setPolicy(ctx, s, c.from.Policy, c.to.Policy); err != nil {
		return nil, err
	}
	if len(c.to.Policy.Routes) > 0 {
		m.opts.Spending.Begin(c.to.aboutSpending())
		if err := m.opts.Egress.SetBill(ctx, s.id, c.to.Bill); err != nil {
			return nil, err
		}
	}
	return nil, m.servePorts(ctx, s, c.to.Exposed)
}

// setReach changes what s reaches, and who reaches it.
func (h *host) setReach(ctx context.Context, s *sandbox, from, to record) (undo func() error, err error) {
	if err := h.setPolicy(ctx, s, from.Policy, to.Policy); err != nil {
		return nil, err
	}
	undo = func() error {
		_, err := h.setReach(context.WithoutCancel(ctx), s, to, from)
		return err
	}
	return undo, h.setClients(ctx, s, from.Ports, to.Ports)
}

func (h *host) removeEgress(ctx context.Context, id string) error {
	if h.opts.Egress == nil {
		return nil
	}
	h.opts.Traffic.Forget(id)
	defer h.opts.Spending.End(id)
	return h.opts.Egress.Remove(ctx, id)
}

// setPolicy changes what a live sandbox may reach. What leads to the gateway
// grows before and shrinks after the policy: what is led there is decided on
// there.
func (h *host) setPolicy(ctx context.Context, s *sandbox, from, to policy.Spec) error {
	if reflect.DeepEqual(from, to) {
		return nil
	}
	before, errFrom := redirectOf(from)
	after, errTo := redirectOf(to)
	if err := errors.Join(errFrom, errTo); err != nil {
		return err
	}
	path := h.paths.netns(s.id)
	moves := !slices.Equal(before.Prefixes, after.Prefixes)
	if moves {
		both := before.With(after.Prefixes)
		if err := netns.UpdateRedirect(path, both); err != nil {
			return errors.Join(err, netns.UpdateRedirect(path, *before))
		}
	}
	if err := h.opts.Egress.SetPolicy(ctx, s.id, to); err != nil {
		if moves {
			err = errors.Join(err, netns.UpdateRedirect(path, *before))
		}
		return err
	}
	if moves {
		return netns.UpdateRedirect(path, *after)
	}
	return nil
}
