package main

import (
	"maps"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/plan"
)

// ownRoute reads a route that a request gives whole, as it is written in a profile.
func (d *daemon) ownRoute(label, text string) (policy.Route, plan.RouteClients, error) {
	c := *d.config.Load()
	c.KnowSecrets(maps.Keys(*d.kept.Load()))
	r, err := c.ParseRoute(label, text)
	if err != nil {
		return policy.Route{}, plan.RouteClients{}, err
	}
	one := map[string]config.Route{label: r}
	routes, err := routesOf(one, c.Prices)
	if err != nil {
		return policy.Route{}, plan.RouteClients{}, err
	}
	_, clients, err := environment(config.Profile{Routes: one})
	return routes[label], clients[label], err
}
