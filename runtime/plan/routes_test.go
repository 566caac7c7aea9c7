package plan

import (
	"fmt"
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
	if got := strings.Join(slices.Sorted(maps.Keys(now.Routed(spec, nil).Routes)), " "); got != "forge gpt" {
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

// A route that the request gives whole is beside the profile's, with its clients; another one's
// name is not taken.
func TestOwnRoutes(t *testing.T) {
	o := NetworkRules{OwnRoute: func(label, text string) (policy.Route, RouteClients, error) {
		if text == "bad" {
			return policy.Route{}, RouteClients{}, fmt.Errorf("route %s: bad", label)
		}
		return policy.Route{Upstream: text}, RouteClients{Env: []string{"AT=" + label}}, nil
	}}
	asked := []string{"js", "own=https://own.example/a=b"}
	mode, spec, err := o.NetworkOf(offering(), NetworkRequest{Routes: asked})
	if got := slices.Sorted(maps.Keys(spec.Routes)); err != nil || mode != netns.ModeAllow || strings.Join(got, " ") != "gpt js own" || spec.Routes["own"].Upstream != "https://own.example/a=b" {
		t.Errorf("%v in the mode %s, %v", spec.Routes, mode, err)
	}
	p := Sandbox{Profile: Profile{Network: offering()}}
	if env := p.routeEnv(Planner{Network: o}, CreateRequest{Routes: asked}); !slices.Equal(env, []string{"npm_config_registry=js", "AT=own"}) {
		t.Errorf("the variables are %q", env)
	}
	if n := offering(); len(n.Clients) != 2 || len(o.ClientsOf(n, asked)) != 3 {
		t.Error("the clients of the route are not those of the sandbox alone")
	}
	kept := Network{}.Routed(spec, asked)
	if len(kept.Routes) != 1 || kept.Routes["own"].Upstream != spec.Routes["own"].Upstream {
		t.Errorf("of a profile without routes it has %v", kept.Routes)
	}
	for text, says := range map[string]string{
		"gpt=https://x.example":   `there is a route "gpt" without it`,
		"forge=https://x.example": `there is a route "forge" without it`,
		"own=bad":                 "route own: bad",
		"Own=https://x.example":   "not one label",
		"=https://x.example":      "not one label",
		"own=ftp://x.example":     "is no URL with https or http",
	} {
		_, _, err := o.NetworkOf(offering(), NetworkRequest{Routes: []string{text}})
		errtest.Want(t, err, sbxerr.NetPolicy, says)
	}
	_, _, err = o.NetworkOf(offering(), NetworkRequest{Routes: []string{"own=https://a.example", "own=https://b.example"}})
	errtest.Want(t, err, sbxerr.NetPolicy, `there is a route "own" without it`)
	_, _, err = NetworkRules{}.NetworkOf(offering(), NetworkRequest{Routes: []string{"own=https://a.example"}})
	errtest.Want(t, err, sbxerr.NetPolicy, "cannot be given whole here")
}
