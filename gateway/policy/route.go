package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/git"
)

// RouteZone is the zone of the names of routes inside: NAME.caisson.internal.
const RouteZone = "caisson.internal"

// RoutePort is the port on which routes are reached inside, by plain HTTP.
const RoutePort = 80

// maxRoutes bounds the routes of one policy, and the entries of each of their lists.
const maxRoutes = 64

// Placement is how a route puts its credential into a request.
type Placement string

// The placements.
const (
	Bearer Placement = "bearer" // Authorization: Bearer SECRET
	Basic  Placement = "basic"  // Authorization: Basic, with a user and the secret as password
	Header Placement = "header" // a header of its own
	Query  Placement = "query"  // a parameter of the query
)

// Route leads a name inside to a server of the operator's choice, by HTTP. The gateway adds
// a credential, which the sandbox never has.
type Route struct {
	Upstream   string    // base URL
	Fallbacks  []string  `json:",omitempty"` // base URLs of upstreams that are asked where those before do not answer
	Credential string    `json:",omitempty"` // name of a secret; empty is none
	Placement  Placement `json:",omitempty"` // empty is Bearer
	Parameter  string    `json:",omitempty"` // name of the header or query parameter, or user of Basic
	Methods    []string  `json:",omitempty"` // empty are all
	Paths      []string  `json:",omitempty"` // patterns below the base URL; empty are all
	CA         string    `json:",omitempty"` // PEM certificates that the upstream's must descend from; empty are the host's
	Private    bool      `json:",omitempty"` // the upstream may have an address that is not public

	Git *git.Scope `json:",omitempty"` // nothing but git passes; it has no methods and paths

	Registry bool   `json:",omitempty"` // the upstream is a registry of images, which may want a token of its own for each
	Auth     string `json:",omitempty"` // base URL of the server that gives those tokens; empty is the upstream

	ClientCert string `json:",omitempty"` // PEM certificates that the upstream is shown, the client's first; empty: none
	ClientKey  string `json:",omitempty"` // name of the secret that is its key: PKCS #8, DER in base64

	Strip   []string `json:",omitempty"` // headers of requests that the upstream does not get
	Keyless bool     `json:",omitempty"` // requests that show a key of the client's are refused; else it is taken out
	Aliases []string `json:",omitempty"` // further places inside, HOST[:PORT][/PATH]

	Models map[string]Model `json:",omitempty"` // upstreams for requests that name a model; NAME* is of all that begin so

	Tokens bool                          `json:",omitempty"` // the answers are those of models, whose tokens are counted
	Ask    bool                          `json:",omitempty"` // streams of chat completions are asked for their usage
	Budget map[budget.Scope]budget.Limit `json:",omitempty"`
	Prices budget.Prices                 `json:",omitempty"` // of models
}

// NoKey is what clients of a preset have as their key: they do not start without one. The gateway
// takes it out of each request.
const NoKey = "held-outside"

// Routed is a compiled Route. It is never changed, so it can be shared.
type Routed struct {
	Route
	Label string   // the first label of its name inside
	Base  *url.URL // of the upstream, whose path ends without a slash

	Name    Name       // of the upstream's host; empty if it is written as an address
	Address netip.Addr // of one without a name
	Port    uint16

	places    []Place // by Aliases, without Route
	paths     []pattern
	to        *Policy   // allows the upstream and nothing else
	fallbacks []*Routed // each has the fields above this line alone
	auth      *Routed   // as a fallback; nil: tokens come from the upstream
	names     []string  // of models, sorted
	models    []*Routed // by names
}

// TokenTurn is the turn in which the server of tokens is reached; -1 if it is the upstream.
func (r *Routed) TokenTurn() int {
	if r.auth == nil {
		return -1
	}
	return r.Turns()
}

// Turns is how many upstreams may be asked one after the other.
func (r *Routed) Turns() int { return 1 + len(r.fallbacks) }

// Turn returns the upstream that is asked in the given turn, the first in turn 0; nil if there
// is none. Those but of models have the base URL, host and port alone.
func (r *Routed) Turn(turn int) *Routed {
	switch {
	case turn == 0:
		return r
	case turn == r.TokenTurn():
		return r.auth
	case turn >= firstModel && turn < firstModel+len(r.models):
		return r.models[turn-firstModel]
	case turn < 0 || turn > len(r.fallbacks):
		return nil
	}
	return r.fallbacks[turn-1]
}

// How routes are written.
const (
	remedyRoute    = "write for example {upstream: https://api.example.com/v1, credential: NAME}"
	remedyGitRoute = "write for example {preset: git, upstream: https://git.example.com, credential: NAME, repositories: [acme/*]}"
)

// parseRoutes checks the routes of s as a whole.
func parseRoutes(s Spec) (map[Name]*Routed, error) {
	if len(s.Routes) > maxRoutes {
		return nil, fmt.Errorf("the policy has %d routes, more than %d", len(s.Routes), maxRoutes)
	}
	routes := map[Name]*Routed{}
	var reasons sbxerr.Reasons
	for _, label := range slices.Sorted(maps.Keys(s.Routes)) {
		r, err := s.parseRoute(label)
		if err != nil {
			remedy := remedyRoute
			if s.Routes[label].Git != nil {
				remedy = remedyGitRoute
			}
			reasons.Add(sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.route", fmt.Errorf("route %q: %w", sbxerr.Clip(label), err), remedy))
			continue
		}
		routes[RouteName(label)] = r
	}
	return routes, reasons.Err()
}

// RouteName is the name inside of the route label.
func RouteName(label string) Name { return Name(label + "." + RouteZone) }

func (s Spec) parseRoute(label string) (*Routed, error) {
	r := &Routed{Route: s.Routes[label], Label: label}
	name, err := canonical(label)
	if err != nil || string(name) != label || name.labels() > 1 {
		return nil, errors.New("its name is not one label of small letters, digits and hyphens, such as models")
	}
	if err := r.parseUpstream(); err != nil {
		return nil, err
	}
	if err := errors.Join(r.checkPlacement(), r.parseAliases()); err != nil {
		return nil, err
	}
	if err := r.parseScope(); err != nil {
		return nil, err
	}
	if err := r.checkBudget(); err != nil {
		return nil, err
	}
	if err := errors.Join(r.checkCA(), r.checkClient(), r.checkStrip()); err != nil {
		return nil, err
	}
	if err := r.allowUpstream(s); err != nil {
		return nil, err
	}
	return r, errors.Join(r.parseFallbacks(s), r.parseRegistry(s), r.parseModels(s))
}

// parseRegistry checks the fields of a route to a registry.
func (r *Routed) parseRegistry(s Spec) error {
	switch {
	case !r.Registry && r.Auth != "":
		return errors.New("only a route to a registry has auth")
	case !r.Registry:
		return nil
	case r.Base.Path != "":
		return fmt.Errorf("its upstream %q has a path, where registries have none", sbxerr.Clip(r.Upstream))
	case len(r.Fallbacks) > 0:
		return errors.New("a route to a registry has no fallbacks: a token is of one")
	case r.Auth == "":
		return nil
	}
	r.auth = &Routed{Route: Route{Upstream: r.Auth, Private: r.Private}, Label: r.Label}
	if err := r.auth.parseUpstream(); err != nil {
		return err
	}
	return r.auth.allowUpstream(s)
}

// allowUpstream makes the policy for connections to the upstream.
func (r *Routed) allowUpstream(s Spec) (err error) {
	rule := join(r.Name, r.Port)
	if r.Name == "" {
		rule = netip.AddrPortFrom(r.Address, r.Port).String()
	}
	if r.Private {
		rule += private
	}
	r.to, err = Compile(Spec{Mode: Allow, Allow: []string{rule}, Deny: s.Deny, Map: s.Map, AirGapped: s.AirGapped})
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	return nil
}

// maxFallbacks bounds how many upstreams one request may be sent to.
const maxFallbacks = 4

func (r *Routed) parseFallbacks(s Spec) error {
	switch {
	case len(r.Fallbacks) > maxFallbacks:
		return fmt.Errorf("it has more than %d fallbacks", maxFallbacks)
	case len(r.Fallbacks) > 0 && r.Git != nil:
		return errors.New("a route for git has no fallbacks: two servers do not have the same refs")
	}
	seen := []string{r.Base.String()}
	for _, text := range r.Fallbacks {
		f := &Routed{Route: Route{Upstream: text, Private: r.Private}, Label: r.Label}
		if err := f.parseUpstream(); err != nil {
			return err
		}
		if err := f.allowUpstream(s); err != nil {
			return err
		}
		if slices.Contains(seen, f.Base.String()) {
			return fmt.Errorf("it has the upstream %q twice", sbxerr.Clip(text))
		}
		seen = append(seen, f.Base.String())
		r.fallbacks = append(r.fallbacks, f)
	}
	return nil
}

func (r *Routed) parseUpstream() error {
	u, err := url.Parse(r.Upstream)
	switch {
	case strings.Contains(r.Upstream, "@"):
		return errors.New("its upstream holds credentials, which anyone may see: name a secret by credential")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("its upstream %q is no URL with https or http and a host", sbxerr.Clip(r.Upstream))
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return fmt.Errorf("its upstream %q has more than a scheme, a host, a port and a path", sbxerr.Clip(r.Upstream))
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	if err := CheckPath(u.EscapedPath() + "/"); err != nil {
		return fmt.Errorf("its upstream %q: %w", sbxerr.Clip(r.Upstream), err)
	}
	r.Base, r.Port = u, portOf[u.Scheme]
	if u.Port() != "" {
		if r.Port, err = parsePort(u.Port()); err != nil {
			return fmt.Errorf("its upstream %q: %w", sbxerr.Clip(r.Upstream), err)
		}
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		r.Address = addr.Unmap()
		return nil
	}
	if r.Name, err = canonical(u.Hostname()); err != nil {
		return fmt.Errorf("its upstream %q: the host %w", sbxerr.Clip(r.Upstream), err)
	}
	return nil
}

// Routed returns the route that a name leads to.
func (p *Policy) Routed(name Name) (*Routed, bool) {
	if p == nil {
		return nil, false
	}
	r, ok := p.routes[name]
	return r, ok
}

// Upstream returns the policy for connections to the upstream of the route name that is asked
// in the given turn. It allows nothing if there is none.
func (p *Policy) Upstream(name Name, turn int) *Policy {
	r, ok := p.Routed(name)
	if !ok || r.Turn(turn) == nil {
		return new(Policy)
	}
	return r.Turn(turn).to.on(p.local)
}

// on is On for a policy that is in force as long as another one is.
func (p *Policy) on(host Local) *Policy {
	there := *p
	there.local = host
	return &there
}

// decideRoute is about a name in the zone of routes. See decide.
func (p *Policy) decideRoute(name Name, port uint16, target string) Decision {
	r, ok := p.routes[name]
	switch {
	case !ok:
		return p.refuse(Decision{Rule: "routes"}, target, "is refused: the sandbox has no such route")
	case port != RoutePort:
		return p.refuse(Decision{Rule: r.cited()}, target, fmt.Sprintf("is refused: a route is reached by plain HTTP, on port %d", RoutePort))
	}
	return Decision{Allowed: true, Rule: r.cited()}
}

// cited is the route as decisions name it.
func (r *Routed) cited() string { return routeRule + r.Label }

const routeRule = "route "

// RouteRule is the rule by which a route has this name.
func RouteRule(name Name) string {
	label, _, _ := strings.Cut(string(name), ".")
	return routeRule + label
}

func (r *Routed) effect(name Name) string {
	places := "http://" + string(name)
	for _, at := range r.places {
		places += " and " + at.URL()
	}
	text := fmt.Sprintf("leads %s to %s", places, strings.Join(append([]string{r.Upstream}, r.Fallbacks...), ", else "))
	text += credentialEffect(r.Credential)
	if r.Git != nil {
		text += ", for " + r.Git.String()
	}
	return text + r.modelEffect()
}

// CitesRoute reports whether rule, of a decision, is a route.
func CitesRoute(rule string) bool { return strings.HasPrefix(rule, routeRule) }

// inRouteZone reports whether only a route can have this name.
func (n Name) inRouteZone() bool {
	return n == RouteZone || strings.HasSuffix(string(n), "."+RouteZone)
}
