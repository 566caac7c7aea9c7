package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
)

// offering is a profile's network with a route that each sandbox has, and two on request.
func offering() Network {
	to := func(host string) policy.Route { return policy.Route{Upstream: "https://" + host} }
	return Network{
		Routes: map[string]policy.Route{"gpt": to("gpt.example")}, Offered: map[string]policy.Route{"forge": to("forge.example"), "js": to("js.example")},
		Clients: map[string]RouteClients{"forge": {Git: [][2]string{{"http://forge.caisson.internal/", "https://forge.example/"}}}, "js": {Env: []string{"npm_config_registry=js"}}},
	}
}

func TestRoutesOnRequest(t *testing.T) {
	for text, want := range map[string]string{"": "gpt", "js": "gpt js", "forge js": "forge gpt js", "gpt": "gpt"} {
		mode, spec, err := NetworkRules{}.NetworkOf(offering(), NetworkRequest{Routes: strings.Fields(text)})
		if got := strings.Join(slices.Sorted(maps.Keys(spec.Routes)), " "); err != nil || mode != netns.ModeAllow || got != want {
			t.Errorf("%q: the routes %q in the mode %s, %v; want %q", text, got, mode, err, want)
		}
	}
	if n := offering(); len(n.Routes) != 1 || len(n.Offered) != 2 {
		t.Error("a request changed the profile")
	}
	quiet := offering()
	quiet.Routes = nil
	for labels, want := range map[string]netns.Mode{"": netns.ModeNone, "js": netns.ModeAllow} {
		mode, spec, err := NetworkRules{}.NetworkOf(quiet, NetworkRequest{Routes: strings.Fields(labels)})
		if err != nil || mode != want || len(spec.Routes) != len(strings.Fields(labels)) {
			t.Errorf("%q of a profile with nothing else: %s, %v, %v", labels, mode, spec.Routes, err)
		}
	}
	bridged := NetworkRules{Bridge: netns.BridgeConfig{Subnet: linkSubnet}}
	for _, tt := range []struct {
		rules NetworkRules
		n     Network
		asked NetworkRequest
		code  sbxerr.Code
		says  string
	}{
		{NetworkRules{}, offering(), NetworkRequest{Routes: []string{"js", "mail"}}, sbxerr.RouteNotOffered, `the profile offers no route "mail"`},
		{NetworkRules{}, Network{}, NetworkRequest{Routes: []string{"js"}}, sbxerr.RouteNotOffered, `no route "js"`},
		{NetworkRules{}, quiet, NetworkRequest{Mode: "none", Routes: []string{"js"}}, sbxerr.NetPolicy, `mode "none" has no routes`},
		{bridged, quiet, NetworkRequest{Mode: "bridge", Routes: []string{"js"}}, sbxerr.NetPolicy, "rules in the network mode"},
	} {
		_, spec, err := tt.rules.NetworkOf(tt.n, tt.asked)
		errtest.Want(t, err, tt.code, tt.says)
		if _, has := spec.Routes["js"]; has {
			t.Errorf("%+v is refused, and gets the route", tt.asked)
		}
	}
	_, _, err := NetworkRules{}.NetworkOf(offering(), NetworkRequest{Routes: []string{"mail"}})
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, `["forge" "js"]`) {
		t.Errorf("the remedy is %q", remedy)
	}
}

// A sandbox of an earlier daemon keeps the routes that are still offered.
func TestRoutedOnRequest(t *testing.T) {
	_, spec, err := NetworkRules{}.NetworkOf(offering(), NetworkRequest{Routes: []string{"js", "forge"}})
	if err != nil {
		t.Fatal(err)
	}
	now := offering()
	delete(now.Offered, "js")
	now.Offered["mail"] = policy.Route{Upstream: "https://mail.example"}
	if got := strings.Join(slices.Sorted(maps.Keys(now.Routed(spec).Routes)), " "); got != "forge gpt" {
		t.Errorf("the routes are %q", got)
	}
}

// A profile's routes on request are checked with it.
func TestOfferedIsChecked(t *testing.T) {
	n := offering()
	n.Offered["js"] = policy.Route{Upstream: "ftp://js.example"}
	err := NetworkRules{}.Validate(map[string]Profile{"agent": {Network: n}})
	errtest.Want(t, err, sbxerr.NetPolicy, `profiles.agent.routes.js`)
}

func TestRouteEnv(t *testing.T) {
	p := &Sandbox{Profile: Profile{Network: offering(), Env: []string{"GIT_CONFIG_COUNT=2"}}}
	for text, want := range map[string]string{
		"": "", "gpt": "",
		"js forge": "npm_config_registry=js GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_2=url.http://forge.caisson.internal/.insteadOf GIT_CONFIG_VALUE_2=https://forge.example/",
	} {
		if got := strings.Join(p.routeEnv(Planner{}, CreateRequest{Routes: strings.Fields(text)}), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	child := Planner{Parent: &ParentNetwork{Clients: map[string]RouteClients{"gpt": {Env: []string{"OPENAI_BASE_URL=x"}}}}}
	if got := p.routeEnv(child, CreateRequest{Routes: []string{"gpt", "js"}}); !slices.Equal(got, []string{"OPENAI_BASE_URL=x"}) {
		t.Errorf("a child has %q", got)
	}
}
