package runtime

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/hostaddr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// PolicyQuery names a policy: that of a live sandbox, or that which a sandbox
// would get that is asked for so.
type PolicyQuery struct {
	Ref     string // a sandbox; empty: of a request with these fields
	Profile string
	Network string
	Allow   []string
	Deny    []string
}

// PolicyVerdict is what a policy makes of one destination.
type PolicyVerdict struct {
	Network         string
	Host            string // in its canonical form, or an address
	Port            uint16
	policy.Decision // with a reason also where what is allowed has to take a way
	Addresses       []AddressVerdict
}

// AddressVerdict is the decision on one address of a name.
type AddressVerdict struct {
	Address netip.Addr
	policy.Decision
}

// PolicyView is all that a policy does.
type PolicyView struct {
	Network string
	Lines   []PolicyLine // in the order in which they count
}

// What the packages below call their own.
type (
	PolicyLine   = policy.Line
	TrafficEntry = traffic.Entry
)

// TrafficGap is the kind of an entry that is no attempt: older ones are no longer kept.
const TrafficGap = traffic.Gap

// CheckPolicy says what a policy makes of a URL, HOST or HOST:PORT. Nothing is
// resolved or tried: a name that is allowed may still lead to an address that is
// not. The addresses are those that the name leads to, if the caller knows them.
func (m *Manager) CheckPolicy(ctx context.Context, q PolicyQuery, target string, addresses []netip.Addr) (PolicyVerdict, error) {
	defer m.Busy()()
	t, err := policy.ParseTarget(target)
	if err != nil {
		return PolicyVerdict{}, err
	}
	if t.Name == "" && len(addresses) > 0 {
		return PolicyVerdict{}, sbxerr.New(sbxerr.Config, "runtime.policy", "the target %s is an address: addresses belong to a name", t.Address)
	}
	mode, p, err := m.policyFor(ctx, q)
	if err != nil {
		return PolicyVerdict{}, err
	}
	host, err := hostaddr.Open()
	if err != nil {
		return PolicyVerdict{}, sbxerr.Wrap(sbxerr.Network, "runtime.policy", err)
	}
	defer func() { _ = host.Close() }()
	p = p.On(host.Local)
	v := PolicyVerdict{Network: string(mode), Host: string(t.Name), Port: t.Port, Decision: p.Check(t)}
	for _, addr := range addresses {
		v.Addresses = append(v.Addresses, AddressVerdict{addr, p.DecideResolved(t.Name, t.Port, addr.Unmap())})
	}
	if v.Allowed && m.opts.Network.Upstream.TakesTarget(p, t) {
		v.Reason = "it is reached through the upstream proxy"
	}
	if v.Host == "" {
		v.Host = t.Address.String()
	}
	return v, nil
}

// ExplainPolicy says all that a policy does.
func (m *Manager) ExplainPolicy(ctx context.Context, q PolicyQuery) (PolicyView, error) {
	defer m.Busy()()
	mode, p, err := m.policyFor(ctx, q)
	if err != nil {
		return PolicyView{}, err
	}
	return PolicyView{Network: string(mode), Lines: append(m.opts.Network.Upstream.Explain(p), p.Explain()...)}, nil
}

func (m *Manager) policyFor(ctx context.Context, q PolicyQuery) (netns.Mode, *policy.Policy, error) {
	mode, spec, err := m.specFor(ctx, q)
	if err == nil && mode == netns.ModeBridge {
		err = errNoPolicy()
	}
	if err == nil && isHosts(mode) {
		err = errHostNetwork()
	}
	if err != nil {
		return "", nil, err
	}
	p, err := policy.Compile(spec)
	return mode, p, err
}

func (m *Manager) specFor(ctx context.Context, q PolicyQuery) (netns.Mode, policy.Spec, error) {
	if q.Ref != "" {
		s, err := m.find(ctx, q.Ref)
		if err != nil {
			return "", policy.Spec{}, err
		}
		r := s.kept()
		return r.Network, r.Policy, nil
	}
	g, err := m.grant(ctx)
	if err != nil {
		return "", policy.Spec{}, err
	}
	asked := plan.NetworkRequest{Mode: g.Network(q.Network, len(q.Allow) > 0), Allow: q.Allow, Deny: q.Deny}
	profile, profileErr := plan.LookupProfile(m.settings().Profiles, q.Profile)
	if err := errors.Join(g.CheckProfile(q.Profile), profileErr); err != nil {
		return "", policy.Spec{}, err
	}
	if profile.Unisolated != nil {
		return plan.HostNetwork, policy.Spec{}, nil
	}
	parent, err := m.parentOf(g)
	switch {
	case err != nil:
		return "", policy.Spec{}, err
	case parent != nil:
		return parent.NetworkOf(asked)
	}
	return m.opts.Network.NetworkOf(profile.Network, asked)
}

// Traffic calls yield with each attempt of a sandbox to reach something, the
// oldest first, and with follow goes on until the sandbox is gone or ctx ends. It begins
// after the entry whose cursor is since. Where entries are no longer kept, one says so
// that is no attempt.
func (m *Manager) Traffic(ctx context.Context, ref, since string, follow bool, yield func(TrafficEntry) error) error {
	s, err := m.find(ctx, ref)
	if err != nil {
		return err
	}
	if m.opts.Traffic == nil {
		return nil
	}
	if counts(s.kept().Network) {
		_ = m.refreshEgress(ctx, s.id) // it is logged
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	c, err := m.opts.Traffic.Begin(s.id, since)
	if err != nil {
		return err
	}
	for {
		next, over := m.opts.Traffic.Next(s.id), s.isOver() // before it is looked at
		entries, gone, err := m.opts.Traffic.Entries(s.id, &c)
		if err != nil {
			return err
		}
		if gone.Entries {
			entries = slices.Insert(entries, 0, gone.Gap(entries))
		}
		if err := addNeeds(s.kept(), entries); err != nil {
			return err
		}
		for _, e := range entries {
			e.Sandbox = s.id
			if err := yield(e); err != nil {
				return err
			}
		}
		if !follow || over {
			return nil
		}
		select {
		case <-next:
		case <-s.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isOver reports whether nothing runs in s any more.
func (s *sandbox) isOver() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}
