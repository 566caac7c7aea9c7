package runtime

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
)

// Egress carries what sandboxes send to where their policies let it go.
// runtime/egress implements it with the process caisson-gateway.
type Egress interface {
	// Add serves a sandbox on sockets of its namespace, which are taken over also
	// on an error.
	Add(ctx context.Context, s egress.Sandbox, by netns.Sockets) error
	// Watch records what a sandbox of the mode bridge sends, of which a socket of its
	// namespace tells. That is taken over also on an error.
	Watch(ctx context.Context, w egress.Watched) error
	// SetPolicy returns when the policy is in force, and what it does not allow
	// is cut. On an error the old one stays.
	SetPolicy(ctx context.Context, id string, p policy.Spec) error
	// Publish accepts connections for a sandbox on listeners of the host, whether it
	// was added or not.
	Publish(ctx context.Context, p egress.Published) error
	// Remove ends the serving of a sandbox. Absent is success.
	Remove(ctx context.Context, id string) error
	// View returns what went through for a sandbox since Add, as far as that was told,
	// and why it is not served if so; false for one that is not there. It asks nobody.
	View(id string) (egress.View, bool)
	// Refresh returns when all was told that happened to a sandbox before, or to all for an
	// empty id, or ctx ends. The code is sbxerr.EgressBusy when it was too much to wait for.
	Refresh(ctx context.Context, id string) error
}

// opening is the work in a sandbox's namespace that its way out takes. Most of it
// is waiting for the kernel, so it goes on beside the making of the container.
type opening struct {
	done    chan struct{}
	sockets *netns.Sockets // taken by who serves them
	err     error
}

// open begins to open the one way out of a sandbox that has one.
func (m *Manager) open(s *sandbox) error {
	gate, err := gateOf(s.kept().Policy)
	if gate == nil || err != nil {
		return err
	}
	if m.opts.Egress == nil {
		return sbxerr.New(sbxerr.Gateway, "runtime.egress", "this daemon has no gateway")
	}
	o := &opening{done: make(chan struct{})}
	s.opening = o
	path := m.paths.netns(s.id)
	go func() {
		defer close(o.done)
		o.sockets, o.err = netns.Lead(path, *gate)
	}()
	return nil
}

// close waits until nothing is done in the namespace any more.
func (o *opening) close() error {
	if o == nil {
		return nil
	}
	<-o.done
	if o.sockets == nil {
		return nil
	}
	return o.sockets.Close()
}

// createEgress hands the way out of a sandbox, and its ports, to the gateway. Each
// name has the address that it had with an earlier daemon, and what was counted
// there counts on.
func (m *Manager) createEgress(ctx context.Context, s *sandbox) error {
	return errors.Join(m.serveOpening(ctx, s), m.watchLink(ctx, s), m.servePorts(ctx, s))
}

func (m *Manager) serveOpening(ctx context.Context, s *sandbox) error {
	o := s.opening
	if o == nil {
		return nil
	}
	<-o.done
	if o.err != nil {
		return o.err
	}
	names, namesErr := m.opts.Traffic.Names(s.id)
	before, countsErr := m.opts.Traffic.Counts(s.id)
	if err := errors.Join(namesErr, countsErr); err != nil {
		return err
	}
	sockets := o.sockets
	o.sockets = nil
	return m.opts.Egress.Add(ctx, egress.Sandbox{ID: s.id, Policy: s.kept().Policy, Names: names, Before: countersBefore(before)}, *sockets)
}

// readmit opens the way out of a sandbox of an earlier daemon again, by the
// policy that it had and the operator's word of now.
func (m *Manager) readmit(ctx context.Context, s *sandbox) error {
	r := s.kept()
	switch r.Network {
	case netns.ModeNone:
		return nil
	case netns.ModeBridge:
		if err := m.watchLink(ctx, s); err != nil {
			return err // what nobody adopts is removed, so that nothing leaves without a record
		}
		return m.relink(s)
	}
	spec, refused := m.opts.Network.Over(r.Policy, m.opts.Profiles[r.Profile].Network.Map).Kept()
	if refused != nil {
		m.log.Warn("leave out rules that are no longer taken", "sandbox", r.ID, "err", refused)
	}
	s.update(func() { s.record.Network, s.record.Policy = netns.Mode(spec.Mode), spec })
	return errors.Join(m.open(s), m.serveOpening(ctx, s))
}

func (m *Manager) removeEgress(ctx context.Context, id string) error {
	if m.opts.Egress == nil {
		return nil
	}
	m.opts.Traffic.Forget(id)
	return m.opts.Egress.Remove(ctx, id)
}

// setPolicy changes what a live sandbox may reach. What leads to the gateway
// grows before and shrinks after the policy: what is led there is decided on
// there.
func (m *Manager) setPolicy(ctx context.Context, s *sandbox, from, to policy.Spec) error {
	if reflect.DeepEqual(from, to) {
		return nil
	}
	before, errFrom := gateOf(from)
	after, errTo := gateOf(to)
	if err := errors.Join(errFrom, errTo); err != nil {
		return err
	}
	path := m.paths.netns(s.id)
	moves := !slices.Equal(before.Prefixes, after.Prefixes)
	if moves {
		both := netns.Gate{Prefixes: union(before.Prefixes, after.Prefixes)}
		if err := netns.Relead(path, both); err != nil {
			return errors.Join(err, netns.Relead(path, *before))
		}
	}
	if err := m.opts.Egress.SetPolicy(ctx, s.id, to); err != nil {
		if moves {
			err = errors.Join(err, netns.Relead(path, *before))
		}
		return err
	}
	if moves {
		return netns.Relead(path, *after)
	}
	return nil
}

func union(a, b []netip.Prefix) []netip.Prefix {
	all := slices.Clone(a)
	for _, p := range b {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}
