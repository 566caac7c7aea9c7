package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/plan"
)

// preset is a kind of client that variables lead to a route.
type preset struct {
	variables [][2]string // names, and values with base and host; git has none
	// How its servers take the key.
	placement, parameter string
	keepsPath            bool // its paths are those of the upstream, not below it
}

// What stands in the values of variables for the base URL of a route, and for its host.
const (
	base = "{base}"
	host = "{host}"
)

// gitPreset is the preset that rewrites URLs instead.
const gitPreset = "git"

// ociPreset is the preset of registries of images.
const ociPreset = "oci"

// presets are for clients whose base URL is the upstream as the route has it.
var presets = map[string]preset{
	"openai":    {variables: [][2]string{{"OPENAI_BASE_URL", base}, {"OPENAI_API_KEY", policy.NoKey}}, placement: "bearer"},
	"anthropic": {variables: [][2]string{{"ANTHROPIC_BASE_URL", base}, {"ANTHROPIC_API_KEY", policy.NoKey}}, placement: "header", parameter: "X-Api-Key"},
	gitPreset:   {placement: "basic", parameter: "x-access-token"}, // servers that take a token look at no name, or want this one
	// The documents of a registry have URLs of packages. npm replaces the host there, and no path.
	"npm": {variables: [][2]string{{"npm_config_registry", base + "/"}, {"npm_config_replace_registry_host", "always"}}, placement: "bearer", keepsPath: true},
	// pip and uv take no index over plain HTTP from a host that they are not told to trust.
	"pip": {variables: [][2]string{
		{"PIP_INDEX_URL", base + "/"}, {"PIP_TRUSTED_HOST", host}, {"UV_DEFAULT_INDEX", base + "/"}, {"UV_INSECURE_HOST", host},
	}, placement: "basic", parameter: "__token__"},
	ociPreset: {placement: "basic", parameter: "token"}, // clients find registries by files alone
	"go":      {variables: [][2]string{{"GOPROXY", base}}, placement: "bearer"},
}

// placed says how the credential of r is put into a request, as placement and parameter.
func placed(r config.Route) (placement, parameter string) {
	p := presets[r.Preset]
	if r.Placement == "" && r.Credential != "" && (r.Parameter == "" || p.placement == "basic") {
		return p.placement, cmp.Or(r.Parameter, p.parameter)
	}
	return r.Placement, r.Parameter
}

// leads returns where r leads as the gateway has it, and what comes after the host in the base
// URL inside. A route that keeps its paths leads to all of the upstream's server, and passes on
// what is below the upstream.
func leads(r config.Route) (upstream string, paths []string, below string) {
	u, err := url.Parse(r.Upstream)
	if err != nil || !presets[r.Preset].keepsPath { // the policy refuses one that is none
		return r.Upstream, r.Paths, ""
	}
	below = strings.TrimSuffix(u.EscapedPath(), "/")
	if below == "" {
		return r.Upstream, r.Paths, ""
	}
	passed := r.Paths
	if len(passed) == 0 {
		passed = []string{"/**"}
	}
	for _, pattern := range passed {
		paths = append(paths, below+pattern)
	}
	u.Path, u.RawPath = "", ""
	return u.String(), paths, below
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

// environment returns the variables of p and those of the presets of its routes, and how
// programs find each route. The error names each variable that is set twice.
func environment(p config.Profile) (env []string, clients map[string]plan.RouteClients, err error) {
	v := &variables{list: slices.Clone(p.Env), by: map[string]string{}}
	for _, text := range p.Env {
		name, _, _ := strings.Cut(text, "=")
		v.by[name] = "env"
	}
	rewrites := &rewrites{by: map[string]string{}}
	for _, label := range slices.Sorted(maps.Keys(p.Routes)) {
		r := p.Routes[label]
		key := "routes." + label + ".preset"
		name := string(policy.RouteName(label))
		_, _, below := leads(r)
		filled := strings.NewReplacer(base, "http://"+name+below, host, name)
		preset, ok := presets[r.Preset]
		var found plan.RouteClients
		switch {
		case r.Preset == "":
			continue
		case !ok:
			v.errs = append(v.errs, fmt.Errorf("%s: there is no preset %q, only %s", key, r.Preset, strings.Join(slices.Sorted(maps.Keys(presets)), ", ")))
			continue
		case r.Preset == gitPreset:
			found.Git, err = rewrites.add(key, filled.Replace(base), r.Upstream)
			v.errs = append(v.errs, err)
		}
		for _, pair := range preset.variables {
			value := filled.Replace(pair[1])
			found.Env = append(found.Env, pair[0]+"="+value)
			if !r.OnRequest {
				v.set(key, pair[0], value)
			}
		}
		if !r.OnRequest {
			rewrites.list = append(rewrites.list, found.Git...)
		}
		if clients == nil {
			clients = map[string]plan.RouteClients{}
		}
		clients[label] = found
	}
	rewrites.set(v)
	return v.list, clients, errors.Join(v.errs...)
}
