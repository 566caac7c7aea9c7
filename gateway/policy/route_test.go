package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/git"
)

func withRoute(r Route) Spec { return Spec{Mode: Allow, Routes: map[string]Route{"up": r}} }

func withModel(name string, m Model) Route {
	return Route{Upstream: "https://api.example.com", Tokens: true, Models: map[string]Model{name: m}}
}

func TestRouteDecisions(t *testing.T) {
	for _, mode := range []Mode{Allow, Open} {
		s := withRoute(Route{Upstream: "https://api.example.com"})
		s.Mode = mode
		p := mustCompile(t, s)
		for _, tt := range []struct {
			name    Name
			port    uint16
			allowed bool
			rule    string
		}{
			{"up.caisson.internal", 80, true, "route up"}, {"up.caisson.internal", 443, false, "route up"}, {"up.caisson.internal", 8080, false, "route up"},
			{"other.caisson.internal", 80, false, "routes"}, {"caisson.internal", 80, false, "routes"}, {"a.up.caisson.internal", 80, false, "routes"},
		} {
			if d := p.Decide(tt.name, tt.port); d.Allowed != tt.allowed || d.Rule != tt.rule {
				t.Errorf("%s: %s:%d: %+v", mode, tt.name, tt.port, d)
			}
		}
		for name, want := range map[Name]bool{"up.caisson.internal": true, "other.caisson.internal": false} {
			if d := p.DecideLookup(name); d.Allowed != want {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if d := p.Decide("api.example.com", 443); mode == Allow && d.Allowed {
			t.Errorf("the upstream itself: %+v", d)
		}
		to := p.Upstream("up.caisson.internal", 0)
		if d := to.Decide("api.example.com", 443); !d.Allowed {
			t.Errorf("the upstream by the route: %+v", d)
		}
		for _, d := range []Decision{to.Decide("api.example.com", 80), to.Decide("other.example.com", 443), p.Upstream("other.caisson.internal", 0).Decide("api.example.com", 443)} {
			if d.Allowed {
				t.Errorf("%+v", d)
			}
		}
		if lines := p.Explain(); len(lines) != 2 || !strings.Contains(lines[0].Effect, "leads http://up.caisson.internal to https://api.example.com") {
			t.Errorf("%+v", lines)
		}
	}
}

// Each upstream of a route has a policy of its own, in its turn.
func TestFallbacks(t *testing.T) {
	p := mustCompile(t, Spec{Mode: Allow, Deny: []string{"denied.example.com"}, Routes: map[string]Route{
		"up": {Upstream: "https://a.example.com", Fallbacks: []string{"https://b.example.com:8443/v1", "http://9.9.9.9"}},
	}})
	r, _ := p.Routed("up.caisson.internal")
	if r.Turns() != 3 || r.Turn(1).Base.Path != "/v1" || r.Turn(1).Port != 8443 || !r.Turn(2).Address.IsValid() || r.Turn(3) != nil || r.Turn(-1) != nil {
		t.Errorf("%+v", r)
	}
	for turn, host := range []Name{"a.example.com", "b.example.com"} {
		to := p.Upstream("up.caisson.internal", turn)
		for other, port := range map[Name]uint16{"a.example.com": 443, "b.example.com": 8443} {
			if d := to.Decide(other, port); d.Allowed != (other == host) {
				t.Errorf("turn %d: %+v", turn, d)
			}
		}
	}
	if d := p.Upstream("up.caisson.internal", 3).Decide("a.example.com", 443); d.Allowed {
		t.Errorf("past the last: %+v", d)
	}
	if text := p.Explain()[1].Effect; !strings.Contains(text, "to https://a.example.com, else https://b.example.com:8443/v1, else http://9.9.9.9") {
		t.Errorf("%q", text)
	}
}

// A route is reached at its aliases as at its name, and at no other port of theirs.
func TestAliases(t *testing.T) {
	s := withRoute(Route{Upstream: "https://a.example.com", Aliases: []string{"api.example.com", "host.docker.internal:8430/proxy/v1/", "host.docker.internal:8431"}})
	s.Deny = []string{"denied.example.com"}
	p := mustCompile(t, s)
	for _, tt := range []struct {
		name    Name
		port    uint16
		url     string
		allowed bool
	}{
		{"up.caisson.internal", 80, "http://up.caisson.internal", true}, {"api.example.com", 80, "http://api.example.com", true}, {"api.example.com", 443, "", false},
		{"host.docker.internal", 8430, "http://host.docker.internal:8430/proxy/v1", true}, {"host.docker.internal", 8431, "http://host.docker.internal:8431", true},
		{"host.docker.internal", 80, "", false}, {"other.docker.internal", 8430, "", false},
	} {
		at, r, ok := p.RouteAt(tt.name, tt.port)
		d := p.Decide(tt.name, tt.port)
		if ok != tt.allowed || d.Allowed != tt.allowed || ok && (at.URL() != tt.url || at.Route != "up.caisson.internal" || r == nil || d.Rule != "route up") {
			t.Errorf("%s:%d: %+v, %v, %+v", tt.name, tt.port, at, ok, d)
		}
	}
	for name, want := range map[Name]bool{"api.example.com": true, "host.docker.internal": true, "docker.internal": false} {
		if d := p.DecideLookup(name); d.Allowed != want || p.HasRoute(name) != want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if text := p.Explain()[1].Effect; !strings.Contains(text, "leads http://up.caisson.internal and http://api.example.com and http://host.docker.internal:8430/proxy/v1 and") {
		t.Errorf("%q", text)
	}
	s.Deny = []string{"api.example.com"}
	if d := mustCompile(t, s).Decide("api.example.com", 80); d.Allowed {
		t.Error("an alias passes a rule that denies")
	}
	for text, want := range map[string]string{
		"API.example.com":        "is not in small letters",
		"x.caisson.internal":     "are those of the routes themselves",
		"a.example.com:443":      "port 443 is for TLS",
		"a.example.com:0":        "is not a number",
		"a.example.com/a/../b":   "a segment of one or two dots",
		"a.example.com/a%2fb":    "more than plain segments",
		"https://a.example.com/": "",
		"*.example.com":          "",
		"":                       "",
	} {
		if _, err := Compile(withRoute(Route{Upstream: "https://a.example.com", Aliases: []string{text}})); sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "alias") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	two := Spec{Mode: Allow, Routes: map[string]Route{"a": {Upstream: "https://a.example.com", Aliases: []string{"x.example.com"}}, "b": {Upstream: "https://b.example.com", Aliases: []string{"x.example.com:80"}}}}
	if _, err := Compile(two); err == nil || !strings.Contains(err.Error(), "alias http://x.example.com of two routes: a.caisson.internal and b.caisson.internal") {
		t.Errorf("%v", err)
	}
}

// The upstream of each model has a turn of its own, and what the route allows.
func TestModels(t *testing.T) {
	p := mustCompile(t, withRoute(Route{
		Upstream: "https://a.example.com", Fallbacks: []string{"https://b.example.com"}, Credential: "one", Tokens: true, Paths: []string{"/v1/**"},
		Models: map[string]Model{"x*": {Upstream: "https://x.example.com", Credential: "two"}, "x-2": {Upstream: "http://10.0.0.9:8000/v1", Private: true}},
	}))
	r, _ := p.Routed("up.caisson.internal")
	for model, host := range map[string]string{"gpt": "a.example.com", "": "a.example.com", "x": "x.example.com", "x-20": "x.example.com", "x-2": "10.0.0.9:8000"} {
		turn := r.ModelTurn(model)
		if to := r.Turn(turn); to == nil || to.Base.Host != host || to.Passes("POST", "/v1/chat") != nil || to.Passes("POST", "/other") == nil {
			t.Errorf("%q: turn %d: %+v", model, turn, to)
		}
	}
	x, y := p.Upstream("up.caisson.internal", r.ModelTurn("x")), p.Upstream("up.caisson.internal", r.ModelTurn("x-2"))
	if !x.Decide("x.example.com", 443).Allowed || x.Decide("a.example.com", 443).Allowed || y.Decide("x.example.com", 443).Allowed || !y.DecideAddress(netip.MustParseAddr("10.0.0.9"), 8000).Allowed {
		t.Error("an upstream of a model allows another one, or not its own")
	}
	if r.Turns() != 2 || r.Turn(firstModel+2) != nil {
		t.Errorf("%d turns", r.Turns())
	}
	want := `to https://a.example.com, else https://b.example.com with the credential "one"; for the model x* to https://x.example.com with the credential "two"; for the model x-2 to http://10.0.0.9:8000/v1`
	if text := p.Explain()[0].Effect; !strings.Contains(text, want) {
		t.Errorf("%q", text)
	}
}

func TestRoutesRefused(t *testing.T) {
	good := Route{Upstream: "https://api.example.com", Credential: "key"}
	change := func(f func(*Route)) Route { r := good; f(&r); return r }
	for want, r := range map[string]Route{
		"no URL with https or http":            change(func(r *Route) { r.Upstream = "api.example.com" }),
		`upstream "ftp://x.example.com" is no`: change(func(r *Route) { r.Fallbacks = []string{"ftp://x.example.com"} }),
		`"https://api.example.com/" twice`:     change(func(r *Route) { r.Fallbacks = []string{"https://api.example.com/"} }),
		"more than 4 fallbacks":                change(func(r *Route) { r.Fallbacks = slices.Repeat([]string{"https://x.example.com"}, 5) }),
		"git has no fallbacks": change(func(r *Route) {
			r.Git, r.Fallbacks = &git.Scope{Repositories: []string{"a"}}, []string{"https://x.example.com"}
		}),
		"more than a scheme":                   change(func(r *Route) { r.Upstream += "/?a=b" }),
		"holds credentials":                    change(func(r *Route) { r.Upstream = "https://a:b@api.example.com" }),
		"has a segment of one or two dots":     change(func(r *Route) { r.Upstream += "/a/../b" }),
		"port":                                 change(func(r *Route) { r.Upstream += ":0" }),
		"underscore":                           change(func(r *Route) { r.Upstream = "https://a_b.example.com" }),
		"public suffix":                        change(func(r *Route) { r.Upstream = "https://com" }),
		`the placement "cookie" is none of`:    change(func(r *Route) { r.Placement = "cookie" }),
		"bearer takes no name":                 change(func(r *Route) { r.Parameter = "x" }),
		"needs a user":                         change(func(r *Route) { r.Placement, r.Parameter = Basic, "a:b" }),
		"needs the name of the header":         change(func(r *Route) { r.Placement = Header }),
		"needs the name of the query":          change(func(r *Route) { r.Placement, r.Parameter = Query, "a b" }),
		"cannot hold a credential":             change(func(r *Route) { r.Placement, r.Parameter = Header, "Host" }),
		"names none":                           change(func(r *Route) { r.Credential, r.Placement = "", Bearer }),
		`"get" is no method`:                   change(func(r *Route) { r.Methods = []string{"get"} }),
		`"CONNECT" is no method`:               change(func(r *Route) { r.Methods = []string{"CONNECT"} }),
		`the path "v1" does not begin`:         change(func(r *Route) { r.Paths = []string{"v1"} }),
		`the path "/v*" has a * that is not`:   change(func(r *Route) { r.Paths = []string{"/v*"} }),
		`the path "/%41" holds a percent`:      change(func(r *Route) { r.Paths = []string{"/%41"} }),
		`the path "/**/a" has ** before`:       change(func(r *Route) { r.Paths = []string{"/**/a"} }),
		"has repositories and access in place": change(func(r *Route) { r.Git, r.Paths = &git.Scope{Repositories: []string{"a/*"}}, []string{"/a"} }),
		"repositories names none":              change(func(r *Route) { r.Git = &git.Scope{} }),
		"none of sandbox, session and hour":    change(func(r *Route) { r.Budget = map[budget.Scope]budget.Limit{"day": {Requests: 1}} }),
		"limits nothing":                       change(func(r *Route) { r.Budget = map[budget.Scope]budget.Limit{budget.Hour: {}} }),
		"known of a model's API alone":         change(func(r *Route) { r.Budget = map[budget.Scope]budget.Limit{budget.Hour: {Tokens: 1}} }),
		"there are no prices":                  change(func(r *Route) { r.Tokens, r.Budget = true, map[budget.Scope]budget.Limit{budget.Hour: {Micros: 1}} }),
		"its ca holds no certificate":          change(func(r *Route) { r.CA = "-----BEGIN CERTIFICATE-----\n" }),
		"requests of a model's API alone name": change(func(r *Route) { r.Models = map[string]Model{"x": {Upstream: "https://x.example.com"}} }),
		`model "a*b": its name is none such`:   withModel("a*b", Model{Upstream: "https://x.example.com"}),
		`model "": its name is none such`:      withModel("", Model{Upstream: "https://x.example.com"}),
		`model "x": its upstream "" is no URL`: withModel("x", Model{Credential: "key"}),
		`model "x": it says how to place`:      withModel("x", Model{Upstream: "https://x.example.com", Placement: Bearer}),
		`model "x": its ca holds`:              withModel("x", Model{Upstream: "https://x.example.com", CA: "x"}),
		`model "x": upstream: `:                withModel("x", Model{Upstream: "https://10.0.0.1"}),
		"which belong together":                change(func(r *Route) { r.ClientKey = "tls" }),
		"where nobody is shown a client_cert":  change(func(r *Route) { r.Upstream, r.ClientCert, r.ClientKey = "http://api.example.com", "x", "tls" }),
		"its client_cert holds no certificate": change(func(r *Route) { r.ClientCert, r.ClientKey = "x", "tls" }),
		`"Host" is no header that a request`:   change(func(r *Route) { r.Strip = []string{"Host"} }),
		`"a b" is no header that a request`:    change(func(r *Route) { r.Strip = []string{"a b"} }),
		"upstream: ":                           change(func(r *Route) { r.Upstream = "https://10.0.0.1" }),
	} {
		_, err := Compile(withRoute(r))
		if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `route "up"`) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	for _, label := range []string{"", "Up", "a.b", "a_b", "-a", strings.Repeat("a", 64)} {
		if _, err := Compile(Spec{Mode: Allow, Routes: map[string]Route{label: good}}); sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), "not one label") {
			t.Errorf("%q: %v", label, err)
		}
	}
	if _, err := Compile(Spec{Mode: None, Routes: map[string]Route{"up": good}}); sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), `route "up"`) {
		t.Errorf("in the mode none: %v", err)
	}
	air := withRoute(good)
	air.AirGapped = true
	if _, err := Compile(air); sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), "air-gapped") {
		t.Errorf("air-gapped: %v", err)
	}
	air.Map = map[string]string{"api.example.com": "10.0.0.1"}
	mustCompile(t, air)
	if kept, err := (Spec{Mode: Allow, Routes: map[string]Route{"up": good, "Bad": good}}).Kept(); err == nil || len(kept.Routes) != 1 {
		t.Errorf("kept %+v, %v", kept.Routes, err)
	}
}

// A child has its parent's routes or none, and never one that its parent has not.
func TestRoutesOfAChild(t *testing.T) {
	s := withRoute(Route{Upstream: "https://api.example.com", Credential: "key"})
	s.Allow = []string{"a.example.com"}
	for _, tt := range []struct {
		allow []string
		want  int
	}{{nil, 1}, {[]string{"a.example.com"}, 0}, {[]string{}, 0}} {
		child, err := s.ForChild(tt.allow, nil, nil)
		if err != nil || len(child.Routes) != tt.want {
			t.Errorf("%q: %+v, %v", tt.allow, child.Routes, err)
		}
	}
	for _, allow := range []string{"up.caisson.internal", "*.caisson.internal", "other.caisson.internal:80"} {
		child, err := s.ForChild([]string{allow}, nil, nil)
		p := mustCompile(t, child)
		if d := p.Decide("up.caisson.internal", 80); d.Allowed || err == nil {
			t.Errorf("%q: %+v, %v", allow, d, err)
		}
	}
}
