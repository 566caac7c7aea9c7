package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/upstream"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/ports"
)

// Network is the network of a profile, for requests that name none. Package policy
// describes the rules.
type Network struct {
	Mode  string // empty is "allow" where Allow or Routes name something, else "none"
	Allow []string
	Deny  []string // a request can add to these, and take none away
	// Map leads names to addresses of the operator's choice: NAME to
	// ADDRESS[:PORT].
	Map map[string]string
	// AllowECH lets TLS clients encrypt the name that they ask for.
	AllowECH bool
	// Routes lead names to upstreams, with credentials. Each sandbox has them.
	Routes map[string]policy.Route
	// Offered are routes that only those sandboxes have that ask for them by name.
	Offered map[string]policy.Route `json:",omitempty"`
	// Clients are how programs find the routes, by label.
	Clients map[string]RouteClients `json:",omitempty"`
}

// mode returns the mode of a request that names no network. A profile that allows a
// destination or has a route means the mode "allow".
func (n Network) mode() string {
	if n.Mode == "" && len(n.Allow)+len(n.Routes) > 0 {
		return string(netns.ModeAllow)
	}
	return cmp.Or(n.Mode, string(netns.ModeNone))
}

// NetworkRules are the operator's rules over all profiles and requests.
type NetworkRules struct {
	AirGapped bool // only mapped names, and only to addresses that are not public
	Map       map[string]string
	Bridge    netns.BridgeConfig
	Upstream  *upstream.Proxy  // through which what is public is reached; nil: none
	Resolvers []netip.AddrPort // that a request may choose
	OwnRoute  OwnRoute         // nil: no request gives a route whole
}

// NetworkRequest is the network part of a request.
type NetworkRequest struct {
	Mode string `json:"mode"`
	// Allow is nil where no rule is named. To a child that is other than an empty list, which
	// allows nothing.
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// Links are those of the sandbox, found when it was asked for.
	Links map[string]policy.Link `json:"links,omitempty"`
	// AllowECH adds to the profile's.
	AllowECH bool `json:"allow_ech,omitempty"`
	// Site lets the mode open lead to private addresses.
	Site bool `json:"site,omitempty"`
	// DNS are the resolvers to ask, ADDRESS or ADDRESS:PORT; none: the gateway's.
	DNS []string `json:"dns,omitempty"`
	// Routes are labels of routes that the profile offers; of a child: that its parent has. As
	// NAME=ROUTE they are the sandbox's own.
	Routes []string `json:"routes,omitempty"`
}

func (r CreateRequest) network() NetworkRequest {
	if len(r.Allow) == 0 {
		r.Allow = nil
	}
	return NetworkRequest{Mode: r.Network, Allow: r.Allow, Deny: r.Deny, AllowECH: r.AllowECH, Site: r.Site, DNS: r.DNS, Routes: r.Routes}
}

// NetworkOf returns the mode and the policy of a sandbox of profile p. The modes none
// and bridge have no policy.
func (o NetworkRules) NetworkOf(p Network, r NetworkRequest) (netns.Mode, policy.Spec, error) {
	wanted := cmp.Or(r.Mode, p.mode())
	if r.Mode == "" && len(r.Allow)+len(r.Links)+len(r.Routes) > 0 && p.mode() == string(netns.ModeNone) {
		wanted = string(netns.ModeAllow) // as in mode
	}
	mode, err := netns.ParseMode(wanted)
	if err != nil {
		return "", policy.Spec{}, err
	}
	if mode == netns.ModeBridge {
		return mode, policy.Spec{}, o.bridgeOf(p, r)
	}
	if mode == netns.ModeNone {
		if err := r.checkNoRoutes(); err != nil {
			return "", policy.Spec{}, err
		}
	}
	if p.Routes, err = o.routesFor(p, r.Routes); err != nil {
		return mode, policy.Spec{}, err
	}
	spec := o.policyOf(mode, p, r)
	spec.Links = r.Links
	if spec.Resolvers, err = o.chosen(r.DNS); err != nil {
		return mode, spec, err
	}
	_, err = policy.Compile(spec)
	return mode, spec, err
}

// maxResolvers is how many resolvers a sandbox has, at most, as in resolv.conf(5).
const maxResolvers = 3

// chosen reads the resolvers of a request, which must be among those of the operator.
func (o NetworkRules) chosen(texts []string) (list []netip.AddrPort, err error) {
	if len(texts) > maxResolvers {
		return nil, sbxerr.New(sbxerr.NetPolicy, "runtime.network", "%d resolvers are more than %d", len(texts), maxResolvers)
	}
	var reasons sbxerr.Reasons
	for _, text := range texts {
		r, err := ParseResolver(text)
		if err == nil && !slices.Contains(o.Resolvers, r) {
			err = fmt.Errorf("resolver %s is not among those that the operator allows", r)
		}
		reasons.Add(err)
		list = append(list, r)
	}
	remedy := "leave --dns away, or ask the operator about network.dns_allowed in the daemon's configuration"
	if len(o.Resolvers) > 0 {
		remedy = fmt.Sprintf("choose among %v", o.Resolvers)
	}
	return list, sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network", reasons.Err(), remedy)
}

// ParseResolver reads ADDRESS or ADDRESS:PORT; the port is 53 where there is none.
func ParseResolver(text string) (netip.AddrPort, error) {
	const dnsPort = 53
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, dnsPort), nil
	}
	r, err := netip.ParseAddrPort(text)
	if err != nil || r.Port() == 0 {
		return r, fmt.Errorf("resolver %.100q is no ADDRESS or ADDRESS:PORT, such as 192.0.2.53", text)
	}
	return r, nil
}

// policyOf is the policy of a sandbox of profile p in the given mode. The rules
// that allow are the request's, or where it has none the profile's; those that
// deny are both's.
func (o NetworkRules) policyOf(mode netns.Mode, p Network, r NetworkRequest) policy.Spec {
	if mode == netns.ModeNone {
		return policy.Spec{Allow: r.Allow, Deny: r.Deny, AllowECH: r.AllowECH} // which are refused there
	}
	allow := r.Allow
	if len(allow) == 0 {
		allow = p.Allow
	}
	spec := policy.Spec{Mode: policy.Mode(mode), Allow: allow, Deny: slices.Concat(p.Deny, r.Deny), AllowECH: p.AllowECH || r.AllowECH, Site: r.Site, Routes: p.Routes}
	return o.Over(spec, p.Map)
}

// Over adds the operator's rules to spec.
func (o NetworkRules) Over(spec policy.Spec, mapped map[string]string) policy.Spec {
	spec.AirGapped = o.AirGapped
	spec.Resolvers = slices.DeleteFunc(slices.Clone(spec.Resolvers), func(r netip.AddrPort) bool { return !slices.Contains(o.Resolvers, r) })
	spec.Map = maps.Clone(o.Map)
	if spec.Map == nil {
		spec.Map = map[string]string{}
	}
	maps.Copy(spec.Map, mapped)
	return spec
}

// Routed is the policy of a sandbox of a profile with the network n that asked for some routes,
// as far as it still has them.
func (n Network) Routed(spec policy.Spec, asked []string) policy.Spec {
	routes := map[string]policy.Route{}
	for label, had := range spec.Routes {
		if slices.ContainsFunc(asked, func(text string) bool { return strings.HasPrefix(text, label+"=") }) {
			routes[label] = had
		} else if r, ok := n.Routes[label]; ok {
			routes[label] = r
		} else if r, ok := n.Offered[label]; ok {
			routes[label] = r
		}
	}
	if spec.Routes = routes; len(routes) == 0 {
		spec.Routes = nil
	}
	return spec
}

// bridgeOf refuses the mode bridge where it is not offered, or together with rules.
func (o NetworkRules) bridgeOf(p Network, r NetworkRequest) error {
	const op = "runtime.network"
	if err := o.Bridge.Offered(); err != nil {
		return err
	}
	if len(r.Links) > 0 {
		return sbxerr.WithRemedy(sbxerr.NetPolicy, op,
			fmt.Errorf("use links in the network mode %q: sandboxes do not reach each other in it", netns.ModeBridge), "use the mode allow")
	}
	if len(r.DNS) > 0 {
		return sbxerr.WithRemedy(sbxerr.NetPolicy, op,
			fmt.Errorf("choose resolvers in the network mode %q: the operator names those that its sandboxes ask (network.bridge.dns)", netns.ModeBridge), "leave --dns away")
	}
	if len(p.Routes)+len(p.Allow)+len(p.Deny)+len(p.Map)+len(r.Allow)+len(r.Deny)+len(r.Routes) > 0 || p.AllowECH || r.AllowECH {
		return sbxerr.WithRemedy(sbxerr.NetPolicy, op,
			fmt.Errorf("use rules in the network mode %q: there is nobody who would know the names of its packets", netns.ModeBridge),
			"use the mode allow, or open with --deny; or leave the rules away: private addresses, the host and other sandboxes are refused in any case")
	}
	return nil
}

// ResolversOf lists the DNS resolvers of a sandbox with this mode.
func (o NetworkRules) ResolversOf(mode netns.Mode) []string {
	switch mode {
	case netns.ModeNone:
		return nil
	case netns.ModeBridge:
		var list []string
		for _, r := range o.Bridge.Resolvers {
			list = append(list, r.String())
		}
		return list
	}
	return []string{netns.Resolver}
}

// CheckPorts refuses ports that an air-gapped daemon does not publish.
func (o NetworkRules) CheckPorts(list []ports.Port) error {
	i := slices.IndexFunc(list, func(p ports.Port) bool { return !p.Local() })
	if !o.AirGapped || i < 0 {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.publish",
		fmt.Errorf("publish %s: this daemon is air_gapped, and others than the host itself could connect there", list[i]), "publish on 127.0.0.1")
}
