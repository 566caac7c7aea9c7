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

// routesFor returns the routes of a sandbox that asks for those with the given labels, beside
// those that each sandbox of the profile has.
func (n Network) routesFor(labels []string) (map[string]policy.Route, error) {
	if len(labels) == 0 {
		return n.Routes, nil
	}
	routes := maps.Clone(n.Routes)
	if routes == nil {
		routes = map[string]policy.Route{}
	}
	var reasons sbxerr.Reasons
	for _, label := range labels {
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
	if pl.Parent != nil {
		n = Network{Clients: pl.Parent.Clients}
	}
	var pairs [][2]string
	for _, label := range r.Routes {
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
