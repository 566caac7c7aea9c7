package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func linked(t *testing.T, change func(*Spec)) *Policy {
	t.Helper()
	s := Spec{Mode: Allow, Links: map[string]Link{"db": {"abc", 5432}}}
	if change != nil {
		change(&s)
	}
	p, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLinks(t *testing.T) {
	p := linked(t, func(s *Spec) { s.Allow = []string{"db:80", "a.example"} })
	if d := p.Decide("db", 5432); !d.Allowed || d.Rule != "link db=abc:5432" || d.Private {
		t.Errorf("its port: %+v", d)
	}
	if d := p.DecideResolved("db", 5432, netip.MustParseAddr("127.0.0.1")); !d.Allowed {
		t.Errorf("connected: %+v", d)
	}
	for _, port := range []uint16{80, 443, 5433} { // also one that a rule allows for a host of that name
		if d := p.Decide("db", port); d.Allowed || d.Rule != "link db=abc:5432" || !strings.Contains(d.Reason, "for port 5432") {
			t.Errorf("port %d: %+v", port, d)
		}
	}
	for name, want := range map[Name]bool{"db": true, "a.example": true, "db.example": false, "x.db": false, "other": false} {
		if d := p.DecideLookup(name); d.Allowed != want {
			t.Errorf("look up %s: %+v", name, d)
		}
	}
	if l, ok := p.Linked("db"); !ok || l != (Link{"abc", 5432}) {
		t.Errorf("%+v, %v", l, ok)
	}
	if d := linked(t, func(s *Spec) { s.Deny = []string{"db"} }).Decide("db", 5432); d.Allowed || d.Rule != "deny db" {
		t.Errorf("denied: %+v", d)
	}
	if d := linked(t, func(s *Spec) { s.AirGapped = true }).Decide("db", 5432); !d.Allowed {
		t.Errorf("air-gapped: %+v", d)
	}
	lines := p.Explain()
	if l := lines[len(lines)-2]; l.Rule != "link db=abc:5432" || !strings.Contains(l.Effect, "port 5432 of the sandbox abc") {
		t.Errorf("explained: %+v", lines)
	}
	var none *Policy
	if _, ok := none.Linked("db"); ok || none.DecideResolved("db", 5432, netip.Addr{}).Allowed {
		t.Error("no policy has a link")
	}
}

func TestLinksRefused(t *testing.T) {
	for name, word := range map[string]string{
		"": "is empty", "db.example": "has a dot", "DB": `is written "db"`, "db.": `is written "db"`, "a b": "white space", "localhost": "own", "ip6-localhost": "own", "ip6-loopback": "own", "127": "ends in a number",
		"-x": "hyphen", "*": "wildcard",
	} {
		_, err := Compile(Spec{Mode: Allow, Links: map[string]Link{name: {"abc", 5432}}})
		if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v, want %q", name, err, word)
		}
	}
	for word, s := range map[string]Spec{
		"has no rules, links and routes": {Links: map[string]Link{"db": {"abc", 5432}}},
		"mapped already":                 {Mode: Allow, Map: map[string]string{"db": "10.0.0.1"}, Links: map[string]Link{"db": {"abc", 5432}}},
		"no port of a sandbox":           {Mode: Allow, Links: map[string]Link{"db": {"abc", 0}}},
		"leads to no port":               {Mode: Allow, Links: map[string]Link{"db": {"", 5432}}},
	} {
		if _, err := Compile(s); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v, want %q", s, err, word)
		}
	}
}
