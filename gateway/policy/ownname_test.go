package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// A rule about what a sandbox calls itself could do nothing, whoever asks for one.
func TestOwnNames(t *testing.T) {
	for _, name := range []string{"localhost", "LOCALHOST.", "x.localhost", "ip6-localhost", "ip6-loopback"} {
		for what, err := range map[string]error{
			"a rule":   second(ParseRule(ActAllow, name+":7000,private")),
			"a map":    second(Compile(Spec{Mode: Allow, Map: map[string]string{name: "127.0.0.1"}})),
			"a policy": second(Compile(Spec{Mode: Open, Allow: []string{name}})),
		} {
			if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), "the sandbox's own loopback") {
				t.Errorf("%s of %s: %v", what, name, err)
				continue
			}
			if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "--publish") || !strings.Contains(remedy, "--link") {
				t.Errorf("%s of %s: remedy %q", what, name, remedy)
			}
		}
		if _, err := ParseRule(ActDeny, name); err != nil {
			t.Errorf("deny %s: %v", name, err)
		}
	}
	if err := second(ParseRule(ActAllow, "*.localhost,private")); err == nil || !strings.Contains(err.Error(), "own loopback") {
		t.Errorf("all below localhost: %v", err)
	}
	for _, name := range []string{"localhost.example", "notlocalhost", "a.localhost.example"} {
		if _, err := ParseRule(ActAllow, name); err != nil {
			t.Errorf("allow %s: %v", name, err)
		}
	}
}

// Nor does a refusal propose such a rule.
func TestOwnNamesAreRefused(t *testing.T) {
	for _, mode := range []Mode{None, Allow, Open} {
		p, err := Compile(Spec{Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []Name{"localhost", "x.localhost", "ip6-loopback"} {
			for what, d := range map[string]Decision{"connection": p.Decide(name, 80), "lookup": p.DecideLookup(name)} {
				if d.Allowed || d.Needs != "" || strings.Contains(d.Remedy, "--allow") || mode != None && d.Remedy != remedyOwn {
					t.Errorf("%s to %s in mode %s: %+v", what, name, mode, d)
				}
			}
		}
	}
}

// A policy of an earlier version goes on without what is refused now.
func TestKept(t *testing.T) {
	link := Link{Sandbox: "s", Port: 5432}
	s := Spec{Mode: Allow, Allow: []string{"a.example", "localhost:7000,private", "169.254.0.0/16,private"}, Links: map[string]Link{"db": link, "ip6-loopback": link}, Deny: []string{"b.example"}}
	got, err := s.Kept()
	if len(got.Allow) != 1 || got.Allow[0] != "a.example" || len(got.Links) != 1 || got.Links["db"] != link || len(got.Deny) != 1 || len(s.Allow) != 3 || len(s.Links) != 2 {
		t.Errorf("%+v of %+v", got, s)
	}
	for _, what := range []string{"localhost:7000", "169.254.0.0/16", "ip6-loopback"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v says nothing of %s", err, what)
		}
	}
	mustCompile(t, got)
	if got, err := (Spec{Mode: Open}).Kept(); err != nil || got.Allow != nil || got.Links != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := (Spec{Mode: Open, Deny: []string{"*"}}).Kept(); err != nil {
		t.Errorf("without a denial more would be allowed: %v", err)
	}
}

// The same when the operator's word is another one by now.
func TestKeptUnderAnotherWord(t *testing.T) {
	link := Link{Sandbox: "s", Port: 5432}
	before := Spec{Mode: Allow, Allow: []string{"a.example", "db.corp:22", "*.x.corp", "10.0.0.0/8,private"}, Links: map[string]Link{"db": link, "other": link}, Deny: []string{"c.corp"}}
	mustCompile(t, before)
	mapped, gapped, open := before, before, Spec{Mode: Open, Allow: []string{"b.example:22"}}
	mapped.Map = map[string]string{"db": "10.0.0.1"}
	gapped.Map, gapped.AirGapped = map[string]string{"db.corp": "10.0.0.1"}, true
	open.AirGapped = true
	for name, tc := range map[string]struct {
		spec  Spec
		mode  Mode
		allow []string
		links []string
		gone  []string
	}{
		"a link is mapped":    {mapped, Allow, before.Allow, []string{"other"}, []string{`link "db": the name is mapped`}},
		"air-gapped":          {gapped, Allow, []string{"db.corp:22"}, []string{"db", "other"}, []string{"a.example", "*.x.corp", "10.0.0.0/8"}},
		"air-gapped, open":    {open, Allow, nil, nil, []string{`mode "open"`, "b.example"}},
		"nothing was changed": {before, Allow, before.Allow, []string{"db", "other"}, nil},
	} {
		if _, err := Compile(tc.spec); (err == nil) != (tc.gone == nil) {
			t.Errorf("%s: the control: %v", name, err)
		}
		got, err := tc.spec.Kept()
		if got.Mode != tc.mode || !slices.Equal(got.Allow, tc.allow) || !slices.Equal(slices.Sorted(maps.Keys(got.Links)), tc.links) || len(got.Deny) != len(tc.spec.Deny) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, what := range tc.gone {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v says nothing of %s", name, err, what)
			}
		}
		if err != nil && tc.gone == nil {
			t.Errorf("%s: %v", name, err)
		}
		mustCompile(t, got)
	}
}

func second[T any](_ T, err error) error { return err }
