package network

import (
	"slices"
	"strings"
	"testing"
)

// Of a host with methods and a path, other requests are refused, and TLS.
func TestScopedRule(t *testing.T) {
	reaches(t, "web.example:80")
	s := create(t, "--allow", "GET web.example/a/*")
	check(t, s, []attempt{
		{"what is allowed", []string{"http", "http://web.example/a/b?c"}, "200 I am " + public},
		{"another path", []string{"http", "http://web.example/b"}, "403 SBX-701"},
	})
	list := s.recorded(t, func(list []entry) bool {
		return slices.ContainsFunc(list, func(e entry) bool {
			return e.Verdict == "refused" && strings.Contains(e.Reason, "GET web.example:80/b ")
		})
	})
	if !slices.ContainsFunc(list, func(e entry) bool {
		return e.Kind == "request" && e.Rule == "allow GET web.example:80/a/*" && e.Type == "GET /a/b"
	}) {
		t.Errorf("%+v", list)
	}
	if r := daemon.Try("policy", "check", "--sandbox", s.id, "https://web.example/a/b"); r.Code != 1 || !strings.Contains(r.Stdout, "a route has them for HTTPS too") {
		t.Errorf("%d %q", r.Code, r.Stdout)
	}
	if r := daemon.Try("policy", "check", "--sandbox", s.id, "http://web.example/b"); r.Code != 1 || !strings.Contains(r.Stdout, "GET web.example/b") {
		t.Errorf("%d %q", r.Code, r.Stdout)
	}
	daemon.Run(t, "policy", "check", "--sandbox", s.id, "http://web.example/a/b")
	if r := daemon.Run(t, "policy", "explain", s.id); !strings.Contains(r.Stdout, "GET web.example:80/a/*") {
		t.Errorf("%q", r.Stdout)
	}
	daemon.Run(t, "update", "--allow", "web.example", s.id)
	check(t, s, []attempt{{"after an update", []string{"http", "http://web.example/b"}, "200 I am " + public}})
	daemon.Refused(t, "SBX-404", "run", "--json", "--allow", "GET web.example:443", "--", "true")
}
