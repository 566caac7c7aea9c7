package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/config"
)

func TestPresets(t *testing.T) {
	p := config.Profile{Env: []string{"A=b"}, Routes: map[string]config.Route{
		"models": {Preset: "openai", Credential: "key"}, "claude": {Preset: "anthropic", Credential: "key"}, "other": {},
	}}
	env, err := environment(p)
	want := []string{
		"A=b", "ANTHROPIC_BASE_URL=http://claude.caisson.internal", "ANTHROPIC_API_KEY=" + noKey,
		"OPENAI_BASE_URL=http://models.caisson.internal", "OPENAI_API_KEY=" + noKey,
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
		`routes.m.preset: there is no preset "x", only anthropic, git, openai`: {Routes: map[string]config.Route{"m": {Preset: "x"}}},
		"routes.m.preset: it sets OPENAI_API_KEY, as env does":                 {Env: []string{"OPENAI_API_KEY=k"}, Routes: map[string]config.Route{"m": {Preset: "openai"}}},
		"routes.m.preset: it sets OPENAI_BASE_URL, as routes.a.preset does":    {Routes: map[string]config.Route{"a": {Preset: "openai"}, "m": {Preset: "openai"}}},
	} {
		if _, err := environment(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
