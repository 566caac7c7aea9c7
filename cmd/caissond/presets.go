package main

import (
	"cmp"
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
	base, key string // the variables of its base URL and of its key; git has none
	// How its servers take the key.
	placement, parameter string
}

// gitPreset is the preset that rewrites URLs instead.
const gitPreset = "git"

// presets are for clients whose base URL is the upstream as the route has it.
var presets = map[string]preset{
	"openai":    {base: "OPENAI_BASE_URL", key: "OPENAI_API_KEY", placement: "bearer"},
	"anthropic": {base: "ANTHROPIC_BASE_URL", key: "ANTHROPIC_API_KEY", placement: "header", parameter: "X-Api-Key"},
	gitPreset:   {placement: "basic", parameter: "x-access-token"}, // servers that take a token look at no name, or want this one
}

// noKey is what such a client has as its key. The gateway takes it out of each request.
const noKey = "held-outside"

// placed says how the credential of r is put into a request, as placement and parameter.
func placed(r config.Route) (placement, parameter string) {
	if p := presets[r.Preset]; r.Placement == "" && r.Credential != "" && (r.Parameter == "" || r.Preset == gitPreset) {
		return p.placement, cmp.Or(r.Parameter, p.parameter)
	}
	return r.Placement, r.Parameter
}

// variables are those of a profile, NAME=VALUE each.
type variables struct {
	list []string
	by   map[string]string // what set each, by name
	errs []error
}

func (v *variables) set(key, name, value string) {
	if other := v.by[name]; other != "" {
		v.errs = append(v.errs, fmt.Errorf("%s: it sets %s, as %s does: leave one of them out", key, name, other))
	}
	v.by[name] = key
	v.list = append(v.list, name+"="+value)
}

// environment returns the variables of p and those of the presets of its routes. The error
// names each variable that is set twice.
func environment(p config.Profile) ([]string, error) {
	v := &variables{list: slices.Clone(p.Env), by: map[string]string{}}
	for _, text := range p.Env {
		name, _, _ := strings.Cut(text, "=")
		v.by[name] = "env"
	}
	rewrites := &rewrites{by: map[string]string{}}
	for _, label := range slices.Sorted(maps.Keys(p.Routes)) {
		r := p.Routes[label]
		key := "routes." + label + ".preset"
		base := "http://" + string(policy.RouteName(label))
		preset, ok := presets[r.Preset]
		switch {
		case r.Preset == "":
		case !ok:
			v.errs = append(v.errs, fmt.Errorf("%s: there is no preset %q, only %s", key, r.Preset, strings.Join(slices.Sorted(maps.Keys(presets)), ", ")))
		case r.Preset == gitPreset:
			v.errs = append(v.errs, rewrites.add(key, base, r.Upstream))
		default:
			v.set(key, preset.base, base)
			v.set(key, preset.key, noKey)
		}
	}
	rewrites.set(v)
	return v.list, errors.Join(v.errs...)
}
