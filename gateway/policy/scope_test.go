package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestScopedRules(t *testing.T) {
	for text, want := range map[string]string{
		"GET example.com/path/*":         "GET example.com:80/path/*",
		"GET,HEAD *.example.com:80":      "GET,HEAD *.example.com:80",
		"example.com/a b":                "",
		"example.com/**":                 "example.com:80/**",
		"POST db.corp/v1/**,private":     "POST db.corp:80/v1/**,private",
		"example.com:80/":                "example.com:80/",
		"GET 9.9.9.9":                    "",
		"9.9.9.0/24":                     "9.9.9.0/24:80+443",
		"9.9.9.9/x":                      "",
		"GET 9.9.9.0/24":                 "",
		"GET example.com:443":            "",
		"GET example.com:80+443":         "",
		"example.com:8080/x":             "",
		"GET example.com,opaque":         "",
		"get example.com":                "",
		"GET, example.com":               "",
		"CONNECT example.com":            "",
		"TRACE example.com/x":            "",
		"GET  example.com":               "",
		"GET example.com/a/../b":         "",
		"GET example.com//a":             "",
		"GET example.com/%61":            "",
		"GET example.com/a?b":            "",
		"GET example.com/a#b":            "",
		"GET example.com/**/b":           "",
		"GET example.com/a*":             "",
		"GET *.com/x":                    "",
		"GET http://example.com/x":       "",
		"GET example.com/x,private,more": "",
		"GET example.com/x:80":           "GET example.com:80/x:80",
	} {
		r, err := ParseRule(ActAllow, text)
		if want == "" {
			if sbxerr.Of(err) != sbxerr.NetPolicy || sbxerr.RemedyOf(err) == "" {
				t.Errorf("%s: %v, %v", text, r, err)
			}
			continue
		}
		if err != nil || r.String() != want {
			t.Errorf("%s: %q, %v; want %q", text, r, err, want)
			continue
		}
		if again, err := ParseRule(ActAllow, r.String()); err != nil || again.String() != want {
			t.Errorf("%s: read back as %q, %v", text, again, err)
		}
	}
	for _, text := range []string{"GET example.com", "example.com/x", "example.com:80/x"} {
		if r, err := ParseRule(ActDeny, text); err == nil || !strings.Contains(err.Error(), "denies a host, not methods and paths") {
			t.Errorf("deny %s: %v, %v", text, r, err)
		}
	}
}

func TestDecideRequest(t *testing.T) {
	p, err := Compile(Spec{Mode: Allow, Allow: []string{
		"GET,HEAD a.example.com/v1/*", "POST a.example.com/up/**", "b.example.com", "GET b.example.com/x", "GET *.c.example.com/x,private", "d.example.com:443", "GET d.example.com/",
	}, Deny: []string{"no.c.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{ // the rule, or what the refusal says
		"GET a.example.com /v1/x":       "allow GET,HEAD a.example.com:80/v1/*",
		"HEAD a.example.com /v1/x%20y":  "allow GET,HEAD a.example.com:80/v1/*",
		"POST a.example.com /up":        "allow POST a.example.com:80/up/**",
		"POST a.example.com /up/a/b":    "allow POST a.example.com:80/up/**",
		"POST a.example.com /v1/x":      "allowed by no rule",
		"GET a.example.com /v1/x/y":     "allowed by no rule",
		"GET a.example.com /v1/":        "allowed by no rule",
		"GET a.example.com /V1/x":       "allowed by no rule",
		"GET a.example.com /up/../v1/x": "plain form",
		"GET a.example.com /v1/%2e%2e":  "plain form",
		"GET a.example.com /v1/a%2fb":   "plain form",
		"GET a.example.com /v1/a;b":     "plain form",
		"GET a.example.com /v1/a\\b":    "plain form",
		"GET a.example.com /v1/a#b":     "plain form",
		"GET a.example.com //v1/x":      "plain form",
		"OPTIONS a.example.com *":       "plain form",
		"CONNECT a.example.com /v1/x":   "allowed by no rule",
		"DELETE b.example.com /..":      "allow b.example.com:80+443",
		"CONNECT b.example.com a:1":     "allow b.example.com:80+443",
		"GET x.c.example.com /x":        "allow GET *.c.example.com:80/x,private",
		"GET no.c.example.com /x":       "is denied",
		"GET d.example.com /":           "allow GET d.example.com:80/",
		"POST d.example.com /":          "allowed by no rule",
		"GET other.example.com /":       "allowed by no rule",
		"TRACE a.example.com /v1/x":     "allowed by no rule",
		"get a.example.com /v1/x":       "allowed by no rule",
	} {
		f := strings.Fields(request)
		d := p.DecideRequest(Name(f[1]), 80, f[0], f[2])
		if refused := !strings.HasPrefix(want, "allow "); refused == d.Allowed || !refused && d.Rule != want || refused && (!strings.Contains(d.Reason, want) || d.Code != sbxerr.EgressDenied || d.Remedy == "") {
			t.Errorf("%s: %+v, want %q", request, d, want)
		}
	}
	if d := p.DecideRequest("a.example.com", 80, "PUT", "/v1/x"); d.Needs != "PUT a.example.com/v1/x" || !strings.Contains(d.Remedy, "--allow 'PUT a.example.com/v1/x'") {
		t.Errorf("%+v", d)
	}
	// No other port is reached, and the refusal names what helps.
	for _, port := range []uint16{443, 22, 8080} {
		if d := p.Decide("a.example.com", port); d.Allowed || !strings.Contains(d.Reason, "plain HTTP alone") || !strings.Contains(d.Reason, "a route has them for HTTPS too") {
			t.Errorf("%d: %+v", port, d)
		}
	}
	if d := p.DecideLookup("a.example.com"); !d.Allowed {
		t.Errorf("%+v", d)
	}
	for url, allowed := range map[string]bool{"http://a.example.com/v1/x": true, "http://a.example.com": false, "https://a.example.com/v1/x": false, "http://b.example.com": true, "a.example.com:80": true} {
		target, err := ParseTarget(url)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Check(target); d.Allowed != allowed {
			t.Errorf("%s: %+v", url, d)
		}
	}
	open, err := Compile(Spec{Mode: Open, Allow: []string{"GET a.example.com/x"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := open.DecideRequest("a.example.com", 80, "PUT", "/"); !d.Allowed || d.Rule != modeOpen {
		t.Errorf("open: %+v", d)
	}
}

// A child has no more requests than its parent.
func TestScopedChild(t *testing.T) {
	parent := Spec{Mode: Allow, Allow: []string{"GET,POST a.example.com/v1/**", "b.example.com:80", "GET c.example.com", "d.example.com/x/*"}}
	for rule, covered := range map[string]bool{
		"GET a.example.com/v1/**": true, "GET a.example.com/v1/x": true, "POST,GET a.example.com/v1/*": true, "GET a.example.com/v1": true,
		"a.example.com/v1/x": false, "GET a.example.com": false, "PUT a.example.com/v1/x": false, "GET,PUT a.example.com/v1/x": false, "GET a.example.com/**": false, "GET a.example.com/*": false, "a.example.com:80": false, "a.example.com": false,
		"GET b.example.com/x": true, "b.example.com/x": true, "b.example.com:80": true, "GET b.example.com": true,
		"GET c.example.com/x": true, "c.example.com/x": false, "GET c.example.com": true,
		"d.example.com/x/y": true, "d.example.com/x/*": true, "PUT d.example.com/x/y": true, "d.example.com/x/**": false, "d.example.com/x/": false, "d.example.com/*/y": false, "d.example.com/x/y/z": false,
	} {
		child, err := parent.ForChild([]string{rule}, nil, nil)
		if (err == nil) != covered || (len(child.Allow) > 0) != covered {
			t.Errorf("%s: %v, %v", rule, child.Allow, err)
		}
	}
	if child, err := parent.ForChild(nil, nil, nil); err != nil || len(child.Allow) != len(parent.Allow) {
		t.Errorf("%+v, %v", child, err)
	}
}
