package plan

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
)

// ParentNetwork is the network of a sandbox as far as its children may have it. Neither a
// profile's network nor the operator's map count for a child, but by its parent.
type ParentNetwork struct {
	Mode   netns.Mode
	Policy policy.Spec
	// Clients are how programs find its routes, by label.
	Clients map[string]RouteClients
}

// NetworkOf returns the mode and the policy of a child that asks for r. What the parent may
// not reach is refused with code sbxerr.NetChild.
func (n ParentNetwork) NetworkOf(r NetworkRequest) (netns.Mode, policy.Spec, error) {
	mode := netns.Mode(cmp.Or(r.Mode, string(netns.ModeNone)))
	if mode == netns.ModeNone {
		_, err := policy.Compile(policy.Spec{Allow: r.Allow, Deny: r.Deny}) // refuses rules
		return mode, policy.Spec{}, errors.Join(err, r.checkNoRoutes())
	}
	if err := n.check(mode); err != nil {
		return "", policy.Spec{}, err
	}
	if _, err := policy.Compile(policy.Spec{Mode: policy.Allow, Allow: r.Allow, Deny: r.Deny}); err != nil {
		return mode, policy.Spec{}, err
	}
	spec, refused, err := n.Narrow(r)
	return mode, spec, errors.Join(refused, err)
}

// Narrow returns the policy of a child that asked for r in the mode allow, without the rules
// that the parent does not cover now. Those are in refused. After an error there is no such
// policy.
func (n ParentNetwork) Narrow(r NetworkRequest) (spec policy.Spec, refused, err error) {
	if err := n.check(netns.ModeAllow); err != nil {
		return policy.Spec{}, nil, err
	}
	spec, refused = n.Policy.ForChild(r.Allow, r.Deny, r.Routes)
	if spec.Mode != policy.Allow {
		return policy.Spec{}, nil, refused
	}
	_, err = policy.Compile(spec)
	return spec, refused, err
}

// check refuses a mode that a child has not.
func (n ParentNetwork) check(mode netns.Mode) error {
	refuse := func(remedy, format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.NetChild, "runtime.network", fmt.Errorf(format, args...), remedy)
	}
	switch {
	case mode != netns.ModeAllow:
		return refuse("name its destinations: --allow HOST, or --network allow for the rules of its parent",
			"a child has the network mode %q or %q, not %q", netns.ModeNone, netns.ModeAllow, sbxerr.Clip(string(mode)))
	case n.Mode != netns.ModeAllow && n.Mode != netns.ModeOpen:
		return refuse("leave --network and --allow away, or have its parent made with the network mode allow or open",
			"its parent has the network mode %q, of which a child can have no part", n.Mode)
	}
	return nil
}
