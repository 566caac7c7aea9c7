package main

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/config"
)

func TestPulls(t *testing.T) {
	for want, r := range map[string]config.Route{
		"GET HEAD: /v2/**": {},
		"GET HEAD: /v2/ /v2/acme/tools/** /v2/acme/*/** /v2/team/**": {Repositories: []string{"acme/tools", "acme/*", "team/**"}},
		"PUT: /v2/x/**": {Methods: []string{"PUT"}, Paths: []string{"/v2/x/**"}},
	} {
		methods, paths := pulls(r)
		if got := strings.Join(methods, " ") + ": " + strings.Join(paths, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	routes, err := routesOf(map[string]config.Route{"images": {Preset: "oci", Upstream: "https://r.example", Credential: "key", Auth: "https://auth.example"}}, nil)
	if r := routes["images"]; err != nil || !r.Registry || r.Auth != "https://auth.example" || r.Placement != "basic" || r.Parameter != "token" {
		t.Errorf("%+v, %v", r, err)
	}
}
