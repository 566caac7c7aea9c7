package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/policy"
)

// preset is a kind of client that variables lead to a route.
type preset struct {
	base, key string // the variables of its base URL and of its key
	// How its servers take the key.
	placement, parameter string
}

// presets are for clients whose base URL is the upstream as the route has it.
var presets = map[string]preset{
	"openai":    {base: "OPENAI_BASE_URL", key: "OPENAI_API_KEY", placement: "bearer"},
	"anthropic": {base: "ANTHROPIC_BASE_URL", key: "ANTHROPIC_API_KEY", placement: "header", parameter: "X-Api-Key"},
}

// noKey is what such a client has as its key. The gateway takes it out of each request.
const noKey = "held-outside"

// placed says how the credential of r is put into a request, as placement and parameter.
func placed(r config.Route) (placement, parameter string) {
	if p := presets[r.Preset]; r.Placement == "" && r.Parameter == "" && r.Credential != "" {
		return p.placement, p.parameter
	}
	return r.Placement, r.Parameter
}

// environment returns the variables of p and those of the presets of its routes, NAME=VALUE
// each. The error names each variable that is set twice.
func environment(p config.Profile) ([]string, error) {
	env := slices.Clone(p.Env)
	by := map[string]string{}
	for _, v := range p.Env {
		name, _, _ := strings.Cut(v, "=")
		by[name] = "env"
	}
	var errs []error
	for _, label := range slices.Sorted(maps.Keys(p.Routes)) {
		r := p.Routes[label]
		if r.Preset == "" {
			continue
		}
		key := "routes." + label + ".preset"
		preset, ok := presets[r.Preset]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: there is no preset %q, only %s", key, r.Preset, strings.Join(slices.Sorted(maps.Keys(presets)), " and ")))
			continue
		}
		for _, v := range [][2]string{{preset.base, "http://" + string(policy.RouteName(label))}, {preset.key, noKey}} {
			if other := by[v[0]]; other != "" {
				errs = append(errs, fmt.Errorf("%s: it sets %s, as %s does: leave one of them out", key, v[0], other))
			}
			by[v[0]] = key
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env, errors.Join(errs...)
}
