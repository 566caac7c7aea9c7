package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
)

// RouteClients is how programs inside find a route.
type RouteClients struct {
	Env []string    `json:",omitempty"` // NAME=VALUE
	Git [][2]string `json:",omitempty"` // base URL of the route, and the beginning of URLs that lead there
}

// OwnRoute reads a route that a request gives whole, with how programs find it.
type OwnRoute func(label, text string) (policy.Route, RouteClients, error)

// GivesRoutes reports whether a request gives a route whole: as NAME=ROUTE, not as NAME.
func (r CreateRequest) GivesRoutes() bool {
	return slices.ContainsFunc(r.Routes, func(text string) bool { return strings.Contains(text, "=") })
}

// ownRoute reads a route that a request gives whole beside those of n and has.
func (o NetworkRules) ownRoute(n Network, has map[string]policy.Route, label, text string) (r policy.Route, err error) {
	_, offered := n.Offered[label]
	switch _, there := has[label]; {
	case there || offered:
		return r, fmt.Errorf("there is a route %q without it: give it another name", sbxerr.Clip(label))
	case o.OwnRoute == nil:
		return r, fmt.Errorf("the route %q cannot be given whole here", sbxerr.Clip(label))
	}
	r, _, err = o.OwnRoute(label, text)
	return r, err
}

// ClientsOf is how programs find the routes of a sandbox of a profile with the network n that
// asked for some.
func (o NetworkRules) ClientsOf(n Network, asked []string) map[string]RouteClients {
	all := maps.Clone(n.Clients)
	for _, entry := range asked {
		label, text, own := strings.Cut(entry, "=")
		if !own || o.OwnRoute == nil {
			continue
		}
		if _, clients, err := o.OwnRoute(label, text); err == nil { // of another one nothing is known any more
			if all == nil {
				all = map[string]RouteClients{}
			}
			all[label] = clients
		}
	}
	return all
}

// routesFor returns the routes of a sandbox that asks for some, by name or whole, beside those
// that each sandbox of the profile has.
func (o NetworkRules) routesFor(n Network, asked []string) (map[string]policy.Route, error) {
	if len(asked) == 0 {
		return n.Routes, nil
	}
	routes := maps.Clone(n.Routes)
	if routes == nil {
		routes = map[string]policy.Route{}
	}
	var reasons, wrong sbxerr.Reasons
	for _, entry := range asked {
		label, text, own := strings.Cut(entry, "=")
		if own {
			r, err := o.ownRoute(n, routes, label, text)
			wrong.Add(err)
			routes[label] = r
			continue
		}
		if _, has := n.Routes[label]; has {
			continue
		}
		r, offered := n.Offered[label]
		if !offered {
			reasons.Add(fmt.Errorf("the profile offers no route %q", sbxerr.Clip(label)))
			continue
		}
		routes[label] = r
	}
	if err := wrong.Err(); err != nil {
		return n.Routes, sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network", err, "write it with the keys that a profile's route has, as NAME={upstream: https://api.example.com, credential: SECRET}")
	}
	if err := reasons.Err(); err != nil {
		return n.Routes, sbxerr.WithRemedy(sbxerr.RouteNotOffered, "runtime.network", err, n.remedyRoute())
	}
	return routes, nil
}

func (n Network) remedyRoute() string {
	names := slices.Sorted(maps.Keys(n.Offered))
	if len(names) == 0 {
		return "choose a profile that offers it, or have the operator give the profile a route with on_request: true"
	}
	return fmt.Sprintf("choose among %q, or another profile", names)
}

// checkNoRoutes refuses routes for a sandbox without a network.
func (r NetworkRequest) checkNoRoutes() error {
	if len(r.Routes) == 0 {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network",
		fmt.Errorf("network mode %q has no routes, but there is route %q", netns.ModeNone, sbxerr.Clip(r.Routes[0])), "leave the mode away, or the route")
}

// routeEnv are the variables by which programs find the routes that r names.
func (p *Sandbox) routeEnv(pl Planner, r CreateRequest) (env []string) {
	n := p.Profile.Network
	n.Clients = pl.Network.ClientsOf(n, r.Routes)
	if pl.Parent != nil {
		n = Network{Clients: pl.Parent.Clients}
	}
	var pairs [][2]string
	for _, entry := range r.Routes {
		label, _, _ := strings.Cut(entry, "=")
		if _, has := n.Routes[label]; has { // its variables are the profile's
			continue
		}
		env = append(env, n.Clients[label].Env...)
		pairs = append(pairs, n.Clients[label].Git...)
	}
	return append(env, GitEnv(p.Profile.Env, pairs)...)
}

// GitEnv are the variables by which git asks routes for what the URLs in pairs lead to, beside
// those of env.
func GitEnv(env []string, pairs [][2]string) (added []string) {
	const count = "GIT_CONFIG_COUNT="
	if len(pairs) == 0 {
		return nil
	}
	have := 0
	for _, kv := range env {
		if text, is := strings.CutPrefix(kv, count); is {
			have, _ = strconv.Atoi(text) // what is no number is replaced
		}
	}
	added = []string{count + strconv.Itoa(have+len(pairs))}
	for i, to := range pairs {
		added = append(added, fmt.Sprintf("GIT_CONFIG_KEY_%d=url.%s.insteadOf", have+i, to[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", have+i, to[1]))
	}
	return added
}

// checkOffered checks each route that requests may name.
func (o NetworkRules) checkOffered(key string, n Network) error {
	n.Routes = n.Offered
	_, errs := o.soundRoutes(key, n)
	return errors.Join(errs...)
}
