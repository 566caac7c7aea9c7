package proxy

import (
	"fmt"
	"net/netip"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/sbxerr"
)

// decide asks policy by about f, with where it was connected to.
func (p *Proxy) decide(f *flow, by *policy.Policy) policy.Decision {
	if l, _ := by.Linked(f.name); l != f.link {
		return elsewhere("change of a link", f)
	}
	d := p.decideTarget(f, by)
	if d.Allowed && p.leavesBy(f, by) != f.proxied {
		return elsewhere("change of what leaves through the upstream proxy", f)
	}
	return d
}

func (p *Proxy) decideTarget(f *flow, by *policy.Policy) policy.Decision {
	switch {
	case f.name == "":
		return by.DecideAddress(f.asked.Addr(), f.asked.Port())
	case f.proxied:
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
