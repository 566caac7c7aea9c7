package runtime

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/upstream"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/sbxerr"
)

// This file answers how far a sandbox reaches. It is pure; egress.go acts on it.

// Network says how far sandboxes of a profile reach where their request does
// not. Rules are written as package policy reads them.
type Network struct {
	Mode  string // empty is "allow" where Allow names something, else "none"
	Allow []string
	Deny  []string // a request can add to these, and take none away
	// Map leads names to addresses of the operator's choice: NAME to
	// ADDRESS[:PORT].
	Map map[string]string
	// AllowECH lets TLS clients encrypt the name that they ask for.
	AllowECH bool
}

// mode is that of a request which says nothing of the network: who names a
// destination wants to reach it.
func (n Network) mode() string {
	if n.Mode == "" && len(n.Allow) > 0 {
		return string(netns.ModeAllow)
	}
	return cmp.Or(n.Mode, string(netns.ModeNone))
}

// NetworkRules is the operator's word over all profiles and requests.
type NetworkRules struct {
	AirGapped bool // only mapped names, and only to addresses that are not public
	Map       map[string]string
	Bridge    netns.BridgeConfig
	Upstream  *upstream.Proxy // through which what is public is reached; nil: none
}

// networkRequest is what a request says of the network.
type networkRequest struct {
	Mode  string   `json:"mode"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// Links are those of the sandbox, found when it was asked for.
	Links map[string]policy.Link `json:"links,omitempty"`
	// AllowECH adds to the profile's.
	AllowECH bool `json:"allow_ech,omitempty"`
}

func (r CreateRequest) network() networkRequest {
	return networkRequest{Mode: r.Network, Allow: r.Allow, Deny: r.Deny, AllowECH: r.AllowECH}
}

// networkOf answers how far a sandbox of profile p reaches that r asks for. It is
// pure. The modes none and bridge have no policy.
func (o NetworkRules) networkOf(p Network, r networkRequest) (netns.Mode, policy.Spec, error) {
	wanted := cmp.Or(r.Mode, p.mode())
	if r.Mode == "" && len(r.Allow)+len(r.Links) > 0 && p.mode() == string(netns.ModeNone) {
		wanted = string(netns.ModeAllow) // as in mode
	}
	mode, err := netns.ParseMode(wanted)
	if err != nil {
		return "", policy.Spec{}, err
	}
	if mode == netns.ModeBridge {
		return mode, policy.Spec{}, o.bridgeOf(p, r)
	}
	spec := o.policyOf(mode, p, r)
	spec.Links = r.Links
	_, err = policy.Compile(spec)
	return mode, spec, err
}

// policyOf is the policy of a sandbox of profile p in the given mode. The rules
// that allow are the request's, or where it has none the profile's; those that
// deny are both's.
func (o NetworkRules) policyOf(mode netns.Mode, p Network, r networkRequest) policy.Spec {
	if mode == netns.ModeNone {
		return policy.Spec{Allow: r.Allow, Deny: r.Deny, AllowECH: r.AllowECH} // which are refused there
	}
	allow := r.Allow
	if len(allow) == 0 {
		allow = p.Allow
	}
	spec := policy.Spec{Mode: policy.Mode(mode), Allow: allow, Deny: slices.Concat(p.Deny, r.Deny), AllowECH: p.AllowECH || r.AllowECH}
	return o.over(spec, p.Map)
}

// over puts the operator's word over spec.
func (o NetworkRules) over(spec policy.Spec, mapped map[string]string) policy.Spec {
	spec.AirGapped = o.AirGapped
	spec.Map = maps.Clone(o.Map)
	if spec.Map == nil {
		spec.Map = map[string]string{}
	}
	maps.Copy(spec.Map, mapped)
	return spec
}

// gateOf is what the namespace of a sandbox with this policy needs besides lo,
// nil for the modes none and bridge.
func gateOf(spec policy.Spec) (*netns.Gate, error) {
	p, err := policy.Compile(spec)
	if err != nil || p.Mode() == policy.None {
		return nil, err
	}
	return &netns.Gate{Prefixes: append([]netip.Prefix{policy.Pool}, p.Prefixes()...)}, nil
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

// changeNetwork is rec with the network that r asks for, and rec where r says
// nothing of it.
func (m *Manager) changeNetwork(rec record, r UpdateRequest) (record, error) {
	if r.Network == nil && r.Allow == nil && r.Deny == nil {
		return rec, nil
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
	set(&rec.Asked.Mode, r.Network)
	if r.Allow != nil {
		rec.Asked.Allow = r.Allow.Rules
	}
	if r.Deny != nil {
		rec.Asked.Deny = r.Deny.Rules
	}
	var err error
	rec.Network, rec.Policy, err = m.opts.Network.networkOf(m.opts.Profiles[rec.Profile].Network, rec.Asked)
	return rec, err
}
