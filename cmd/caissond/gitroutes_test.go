package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/config"
)

func TestGitRewrites(t *testing.T) {
	p := config.Profile{Routes: map[string]config.Route{
		"forge": {Preset: "git", Upstream: "https://Git.example:8443/", Credential: "key"}, "acme": {Preset: "git", Upstream: "http://git.example/a%20b"},
	}}
	env, _, err := environment(p)
	want := []string{
		"GIT_CONFIG_COUNT=6",
		"GIT_CONFIG_KEY_0=url.http://acme.caisson.internal/.insteadOf", "GIT_CONFIG_VALUE_0=http://git.example/a%20b/",
		"GIT_CONFIG_KEY_1=url.http://acme.caisson.internal/.insteadOf", "GIT_CONFIG_VALUE_1=ssh://git@git.example/a%20b/",
		"GIT_CONFIG_KEY_2=url.http://acme.caisson.internal/.insteadOf", "GIT_CONFIG_VALUE_2=git@git.example:a%20b/",
		"GIT_CONFIG_KEY_3=url.http://forge.caisson.internal/.insteadOf", "GIT_CONFIG_VALUE_3=https://git.example:8443/",
		"GIT_CONFIG_KEY_4=url.http://forge.caisson.internal/.insteadOf", "GIT_CONFIG_VALUE_4=ssh://git@git.example/",
		"GIT_CONFIG_KEY_5=url.http://forge.caisson.internal/.insteadOf", "GIT_CONFIG_VALUE_5=git@git.example:",
	}
	if err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v", env, err)
	}
	for user, want := range map[string]string{"": "x-access-token", "me": "me"} {
		if placement, parameter := placed(config.Route{Preset: "git", Credential: "key", Parameter: user}); placement != "basic" || parameter != want {
			t.Errorf("%q: %q %q", user, placement, parameter)
		}
	}
	p.Env = []string{"GIT_CONFIG_COUNT=1"}
	if _, _, err := environment(p); err == nil || !strings.Contains(err.Error(), "routes.acme.preset: it sets GIT_CONFIG_COUNT, as env does") {
		t.Error(err)
	}
	twice := config.Profile{Routes: map[string]config.Route{"a": {Preset: "git", Upstream: "https://git.example"}, "b": {Preset: "git", Upstream: "https://git.example/"}}}
	if _, _, err := environment(twice); err == nil || !strings.Contains(err.Error(), "routes.b.preset: routes.a.preset leads to the same upstream") {
		t.Error(err)
	}
}

func TestGitScope(t *testing.T) {
	some := []string{"a/b"}
	s, err := gitScope("r", config.Route{Preset: "git", Repositories: some, Access: "write", Branches: some})
	if err != nil || !s.Write || !slices.Equal(s.Repositories, some) || !slices.Equal(s.Branches, some) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, access := range []string{"", "read"} {
		if s, err := gitScope("r", config.Route{Preset: "git", Repositories: some, Access: access}); err != nil || s.Write {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if s, err := gitScope("r", config.Route{Preset: "openai"}); s != nil || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for want, r := range map[string]config.Route{
		`routes.r.access: there is no access "admin", only read and write`: {Preset: "git", Access: "admin"},
		"routes.r.branches: the list is empty":                             {Preset: "git", Access: "write", Branches: []string{}},
		"routes.r.repositories: only a route with preset: git has it":      {Preset: "openai", Repositories: some},
		"routes.r.access: only a route with preset: git has it":            {Access: "read"},
		"routes.r.branches: only a route with preset: git has it":          {Branches: []string{}},
	} {
		if _, err := gitScope("r", r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
