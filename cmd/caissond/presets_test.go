package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/policy"
)

func TestPresets(t *testing.T) {
	p := config.Profile{Env: []string{"A=b"}, Routes: map[string]config.Route{
		"models": {Preset: "openai", Credential: "key"}, "claude": {Preset: "anthropic", Credential: "key"}, "other": {},
	}}
	env, _, err := environment(p)
	want := []string{
		"A=b", "ANTHROPIC_BASE_URL=http://claude.caisson.internal", "ANTHROPIC_API_KEY=" + policy.NoKey,
		"OPENAI_BASE_URL=http://models.caisson.internal", "OPENAI_API_KEY=" + policy.NoKey,
	}
	if err != nil || !slices.Equal(env, want) || len(p.Env) != 1 {
		t.Errorf("%q, %v", env, err)
	}
	for _, tt := range []struct{ route, placement, parameter string }{{"models", "bearer", ""}, {"claude", "header", "X-Api-Key"}, {"other", "", ""}} {
		if placement, parameter := placed(p.Routes[tt.route]); placement != tt.placement || parameter != tt.parameter {
			t.Errorf("%s: %q %q", tt.route, placement, parameter)
		}
	}
	own := config.Route{Preset: "anthropic", Credential: "key", Placement: "bearer"}
	if placement, parameter := placed(own); placement != "bearer" || parameter != "" {
		t.Errorf("%q %q", placement, parameter)
	}
	for want, p := range map[string]config.Profile{
		`routes.m.preset: there is no preset "x", only anthropic, git, go, npm, oci, openai, pip`: {Routes: map[string]config.Route{"m": {Preset: "x"}}},
		"routes.m.preset: it sets OPENAI_API_KEY, as env does":                                    {Env: []string{"OPENAI_API_KEY=k"}, Routes: map[string]config.Route{"m": {Preset: "openai"}}},
		"routes.m.preset: it sets OPENAI_BASE_URL, as routes.a.preset does":                       {Routes: map[string]config.Route{"a": {Preset: "openai"}, "m": {Preset: "openai"}}},
	} {
		if _, _, err := environment(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// npm asks by the paths of the registry itself, as they are in the registry's documents.
func TestPresetsOfPackages(t *testing.T) {
	p := config.Profile{Routes: map[string]config.Route{
		"js":  {Preset: "npm", Upstream: "https://a.example/repository/js/", Credential: "key"},
		"mod": {Preset: "go", Upstream: "https://a.example/go", Credential: "key"},
		"py":  {Preset: "pip", Upstream: "https://a.example/simple", Credential: "key", Parameter: "ann", Paths: []string{"/*/"}},
	}}
	env, _, err := environment(p)
	want := []string{
		"npm_config_registry=http://js.caisson.internal/repository/js/", "npm_config_replace_registry_host=always", "GOPROXY=http://mod.caisson.internal",
		"PIP_INDEX_URL=http://py.caisson.internal/", "PIP_TRUSTED_HOST=py.caisson.internal", "UV_DEFAULT_INDEX=http://py.caisson.internal/", "UV_INSECURE_HOST=py.caisson.internal",
	}
	if err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v", env, err)
	}
	for _, tt := range []struct {
		route                          config.Route
		upstream, placement, parameter string
		paths                          []string
	}{
		{p.Routes["js"], "https://a.example", "bearer", "", []string{"/repository/js/**"}},
		{config.Route{Preset: "npm", Upstream: "https://a.example", Credential: "key"}, "https://a.example", "bearer", "", nil},
		{config.Route{Preset: "npm", Upstream: "https://a.example/js", Paths: []string{"/left", "/left/**"}}, "https://a.example", "", "", []string{"/js/left", "/js/left/**"}},
		{p.Routes["mod"], "https://a.example/go", "bearer", "", nil},
		{p.Routes["py"], "https://a.example/simple", "basic", "ann", []string{"/*/"}},
		{config.Route{Preset: "pip", Credential: "key"}, "", "basic", "__token__", nil},
	} {
		upstream, paths, _ := leads(tt.route)
		placement, parameter := placed(tt.route)
		if upstream != tt.upstream || !slices.Equal(paths, tt.paths) || placement != tt.placement || parameter != tt.parameter {
			t.Errorf("%+v: %q %q %q %q", tt.route, upstream, paths, placement, parameter)
		}
	}
}

// The upstream of a model takes its credential as the preset has it, or as it says itself.
func TestModelsOfARoute(t *testing.T) {
	r := config.Route{Preset: "anthropic", Upstream: "https://a.example", Credential: "one", Placement: "bearer", Models: map[string]config.RouteModel{
		"x": {Upstream: "https://x.example", Credential: "two"},
		"y": {Upstream: "https://y.example", Credential: "three", Placement: "query", Parameter: "k", Private: true},
		"z": {Upstream: "https://z.example"},
	}}
	models, err := modelsOf("up", r)
	want := map[string]policy.Model{
		"x": {Upstream: "https://x.example", Credential: "two", Placement: policy.Header, Parameter: "X-Api-Key"},
		"y": {Upstream: "https://y.example", Credential: "three", Placement: policy.Query, Parameter: "k", Private: true},
		"z": {Upstream: "https://z.example"},
	}
	if err != nil || !maps.Equal(models, want) {
		t.Errorf("%+v, %v", models, err)
	}
	if c := (config.Config{Profiles: map[string]config.Profile{"p": {Routes: map[string]config.Route{"up": r}}}}); len(routesWith(c, "three")) != 1 || len(routesWith(c, "four")) != 0 {
		t.Error("a secret of a model has no route")
	}
}

func TestClientKeys(t *testing.T) {
	for value, keyless := range map[string]bool{"": false, "strip": false, "refuse": true} {
		routes, err := routesOf(map[string]config.Route{"r": {Upstream: "https://a.example", ClientKeys: value}}, nil)
		if err != nil || routes["r"].Keyless != keyless {
			t.Errorf("%q: %+v, %v", value, routes, err)
		}
	}
	const want = `routes.r.client_keys: there is no "drop", only strip and refuse`
	if _, err := routesOf(map[string]config.Route{"r": {Upstream: "https://a.example", ClientKeys: "drop"}}, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}
