package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sbxerr"
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

func second[T any](_ T, err error) error { return err }
