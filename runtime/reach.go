package runtime

import (
	"fmt"
	"net/netip"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
)

// This file answers how far a sandbox reaches. It is pure; egress.go acts on it.

// redirectOf is what the namespace of a sandbox with this policy needs besides lo,
// nil for the modes none and bridge.
func redirectOf(spec policy.Spec) (*netns.Redirect, error) {
	p, err := policy.Compile(spec)
	if err != nil || p.Mode() == policy.None {
		return nil, err
	}
	return &netns.Redirect{Prefixes: append([]netip.Prefix{policy.Pool}, p.Prefixes()...)}, nil
}

// errNoWayOut refuses to change the network of a sandbox that has none.
func (r UpdateRequest) errNoWayOut(rec record) error {
	var asked policy.Spec
	if r.Allow != nil {
		asked.Allow = r.Allow.Rules
	}
	if r.Deny != nil {
		asked.Deny = r.Deny.Rules
	}
	refused := ""
	if given := asked.Given(); given != "" {
		refused = given + " cannot be added: "
	}
	return sbxerr.WithRemedy(sbxerr.NetworkMode, "runtime.update",
		fmt.Errorf("%ssandbox %s has the network mode %q, in which there is nothing to change: no way out was made", refused, rec.Name, rec.Network),
		"make a sandbox that has one, as in caisson create --allow github.com:443; its rules can be changed while it lives")
}

// aboutNetwork reports whether r names anything of a network.
func (r UpdateRequest) aboutNetwork() bool {
	return r.Network != nil || r.Allow != nil || r.Deny != nil
}

// changeNetwork is rec with the network that r asks for, and rec where r says
// nothing of it.
func (m *Manager) changeNetwork(rec record, r UpdateRequest) (record, error) {
	if !r.aboutNetwork() {
		return rec, nil
	}
	if isHosts(rec.Network) {
		return record{}, errHostNetwork()
	}
	if rec.Network == netns.ModeNone {
		return record{}, r.errNoWayOut(rec)
	}
	if r.Network != nil && (*r.Network == string(netns.ModeNone) || *r.Network == string(netns.ModeBridge)) {
		return record{}, sbxerr.WithRemedy(sbxerr.NetworkMode, "runtime.update",
			fmt.Errorf("a live sandbox cannot be given the network mode %q", sbxerr.Clip(*r.Network)), "change its rules instead: in the mode allow nothing is reached without one")
	}
	if rec.Network == netns.ModeBridge {
		return record{}, errNoPolicy()
	}
	plan.Override(&rec.Asked.Mode, r.Network)
	if r.Allow != nil {
		rec.Asked.Allow = r.Allow.Rules
	}
	if r.Deny != nil {
		rec.Asked.Deny = r.Deny.Rules
	}
	if rec.Parent != "" {
		return m.changeChild(rec, r)
	}
	var err error
	rec.Network, rec.Policy, err = m.opts.Network.NetworkOf(m.profileOf(rec).Network, rec.Asked)
	return rec, err
}
