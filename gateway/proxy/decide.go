package proxy

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// first decides on what the sandbox asked for, before anything is resolved. From then on
// a change of the policy cuts f.
func (p *Proxy) first(f *flow, asked netip.AddrPort) policy.Decision {
	name, known := policy.Name(""), true
	if policy.Pool.Contains(asked.Addr()) {
		name, known = p.config.Names.Name(asked.Addr())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.asked, f.name = asked, name
	f.place, _, f.toRoute = p.policy.RouteAt(name, asked.Port())
	if !known {
		return policy.Decision{
			Rule: "pool", Code: sbxerr.EgressDenied, Reason: fmt.Sprintf("the address %s means no name in this sandbox", asked.Addr()), Remedy: "resolve the name again",
		}
	}
	d := p.decide(f, p.policy)
	f.wanted = d.Allowed
	f.unread = d.Allowed && p.policy.Opaque(name, asked.Port())
	return d
}

// route decides once more before anything leaves, and by which way it does.
func (p *Proxy) route(f *flow) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := f.ended(); err != nil {
		return err
	}
	if d := p.decide(f, p.policy); !d.Allowed {
		return d.Err()
	}
	f.link, _ = p.policy.Linked(f.name)
	f.proxied = p.leavesBy(f, f.under(p.policy))
	f.routed = true
	return nil
}

// ask decides on a request by plain HTTP of f, which is under way until the next one. Where rules are
// about methods or a path, scoped is true.
func (p *Proxy) ask(f *flow, a asking) (d policy.Decision, scoped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.asking = &a
	d = p.decide(f, p.policy)
	if !d.Allowed {
		f.asking = nil // the connection is told, and goes on until then
	}
	return d, d.Scoped
}

// answered says that no request of f is under way.
func (p *Proxy) answered(f *flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.asking = nil
}

// try decides on addr, which f is to be connected to next.
func (p *Proxy) try(f *flow, addr netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := f.ended(); err != nil {
		return err
	}
	f.address = addr
	return p.decide(f, p.policy).Err()
}

// untry says that f was connected to nobody.
func (p *Proxy) untry(f *flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.address = netip.AddrPort{}
}

// hold has a change of the policy reset c, by which f leaves.
func (p *Proxy) hold(f *flow, c *net.TCPConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.upstream = c
	return f.ended()
}

// ours reports whether err is a decision, a limit, or an end from outside, and no failure
// of a destination.
func ours(err error) bool {
	code := sbxerr.Of(err)
	return code == sbxerr.EgressDenied || code == sbxerr.EgressAddress || code == sbxerr.EgressECH || code == sbxerr.EgressBusy || code == sbxerr.Canceled
}

// ended is why f was ended from outside, nil if it was not. The caller holds the lock.
func (f *flow) ended() error {
	if f.cutBy == nil {
		return nil
	}
	return sbxerr.New(sbxerr.Canceled, "proxy.admit", "the connection was ended: %s", f.cutBy.verdict)
}

// under is the policy for f where by is in force.
func (f *flow) under(by *policy.Policy) *policy.Policy {
	if f.route == "" {
		return by
	}
	return by.Upstream(f.route, f.turn)
}

// decide asks policy by about f, with as much as is known of where it goes.
func (p *Proxy) decide(f *flow, by *policy.Policy) policy.Decision {
	d := p.decideUnder(f, f.under(by))
	if f.route != "" {
		d.Rule = f.attempt.Rule // of the route
	}
	return d
}

func (p *Proxy) decideUnder(f *flow, by *policy.Policy) policy.Decision {
	if l, _ := by.Linked(f.name); f.routed && l != f.link {
		return elsewhere("change of a link", f)
	}
	d := p.decideTarget(f, by)
	if d.Allowed && d.Scoped && f.asking != nil {
		d = by.DecideRequest(f.name, f.asked.Port(), f.asking.method, f.asking.path)
	}
	if d.Allowed && f.routed && p.leavesBy(f, by) != f.proxied {
		return elsewhere("change of what leaves through the upstream proxy", f)
	}
	return d
}

func (p *Proxy) decideTarget(f *flow, by *policy.Policy) policy.Decision {
	if f.name == "" {
		return by.DecideAddress(f.asked.Addr(), f.asked.Port())
	}
	if d := by.DecideAliases(f.name, f.aliases, f.asked.Port()); !d.Allowed {
		return d
	}
	if f.unread && !by.Opaque(f.name, f.asked.Port()) {
		return policy.Decision{Rule: by.Decide(f.name, f.asked.Port()).Rule, Code: sbxerr.EgressDenied, Reason: f.target() + " is allowed only where the client names its host now"}
	}
	if f.hidden {
		if d := by.DecideECH(f.name, f.asked.Port()); !d.Allowed {
			return d
		}
	}
	if f.proxied || !f.address.IsValid() {
		return by.Decide(f.name, f.asked.Port())
	}
	return p.decideResolved(f, by, f.address.Addr())
}

func elsewhere(rule string, f *flow) policy.Decision {
	return policy.Decision{Rule: rule, Code: sbxerr.EgressDenied, Reason: f.target() + " leads elsewhere now"}
}

// decideResolved asks policy by about f by addr, to which its name led.
func (p *Proxy) decideResolved(f *flow, by *policy.Policy, addr netip.Addr) policy.Decision {
	d := by.DecideResolved(f.name, f.asked.Port(), addr)
	if _, linked := by.Linked(f.name); !d.Allowed || linked || !p.config.Upstream.Reserves(by, f.name, addr) {
		return d
	}
	return policy.Decision{
		Rule: d.Rule, Code: sbxerr.EgressDenied,
		Reason: fmt.Sprintf("%s, which leads to %s, is refused: what is public is reached through the upstream proxy alone, and this name is not", f.target(), addr),
		Remedy: "leave \"private\" out of its rule if the name is public; or the operator excepts it: network.upstream_proxy.except",
	}
}

// leavesBy reports whether f leaves through the upstream proxy by policy by.
func (p *Proxy) leavesBy(f *flow, by *policy.Policy) bool {
	if f.name == "" {
		return p.config.Upstream.TakesAddress(f.asked.Addr())
	}
	return p.config.Upstream.Takes(by, f.name, f.asked.Port())
}
