package upstream

import (
	"fmt"
	"net/netip"

	"github.com/caisson-run/caisson/gateway/policy"
)

// Takes reports whether a connection to port of name, which p allows, leaves through u.
func (u *Proxy) Takes(p *policy.Policy, name policy.Name, port uint16) bool {
	return u.outside(p, name, port) && !p.Decide(name, port).Private
}

// TakesAddress reports whether one to an address without a name does.
func (u *Proxy) TakesAddress(addr netip.Addr) bool {
	return u != nil && policy.Classify(addr).Grade == policy.Public && !u.except.HasAddress(addr)
}

// TakesTarget reports whether one to t does, which p allows.
func (u *Proxy) TakesTarget(p *policy.Policy, t policy.Target) bool {
	if t.Name == "" {
		return u.TakesAddress(t.Address)
	}
	return u.Takes(p, t.Name, t.Port)
}

// Explain is what u means for a sandbox with the policy p, for people.
func (u *Proxy) Explain(p *policy.Policy) []policy.Line {
	if u == nil || p.Mode() == policy.None {
		return nil
	}
	effect := "what is public is reached through it alone, which resolves names and judges their addresses; mapped names, links and what has a rule with private are not"
	if n := len(u.spec.Except); n > 0 {
		effect += fmt.Sprintf(", and %d exceptions of the operator", n)
	}
	return []policy.Line{{Rule: "upstream proxy", Effect: effect}}
}

// Resolves reports whether u, and nobody here, is asked for the addresses of name on
// any port that p allows.
func (u *Proxy) Resolves(p *policy.Policy, name policy.Name) bool {
	return u.outside(p, name, 0) && p.AllowsPublic(name)
}

// Reserves reports whether addr, to which name led, is reached through u or not at all.
func (u *Proxy) Reserves(p *policy.Policy, name policy.Name, addr netip.Addr) bool {
	_, mapped := p.Mapped(name, 0)
	return u.TakesAddress(addr) && !mapped && !u.except.HasName(name)
}

// outside reports whether name, by itself, lies behind u.
func (u *Proxy) outside(p *policy.Policy, name policy.Name, port uint16) bool {
	if u == nil || !name.Worldwide() || u.except.HasName(name) {
		return false
	}
	_, mapped := p.Mapped(name, port)
	_, linked := p.Linked(name)
	return !mapped && !linked
}
