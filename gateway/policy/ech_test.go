package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestDecideECH(t *testing.T) {
	for name, tt := range map[string]struct {
		spec Spec
		rule string // that refuses; empty where it passes
	}{
		"a rule for the name":         {Spec{Mode: Allow, Allow: []string{"a.test"}}, "allow a.test:80+443"},
		"a wildcard":                  {Spec{Mode: Allow, Allow: []string{"*.a.test", "a.test:443"}}, "allow a.test:443"},
		"a mapped name":               {Spec{Mode: Allow, Map: map[string]string{"a.test": "10.0.0.1"}}, "map a.test=10.0.0.1"},
		"open":                        {Spec{Mode: Open}, ""},
		"open, denied name":           {Spec{Mode: Open, Deny: []string{"b.test"}}, "deny b.test"},
		"open, denied below":          {Spec{Mode: Open, Deny: []string{"*.b.test:443"}}, "deny *.b.test:443"},
		"open, denied on other ports": {Spec{Mode: Open, Deny: []string{"b.test:80"}}, ""},
		"open, denied address":        {Spec{Mode: Open, Deny: []string{"10.0.0.1"}}, ""},
		"open, private by name":       {Spec{Mode: Open, Allow: []string{"a.test,private"}}, "allow a.test:80+443,private"},
		"allowed by word":             {Spec{Mode: Allow, Allow: []string{"a.test"}, AllowECH: true}, ""},
		"open, allowed by word":       {Spec{Mode: Open, Deny: []string{"b.test"}, AllowECH: true}, ""},
	} {
		d := mustCompile(t, tt.spec).DecideECH("a.test", 443)
		if d.Allowed != (tt.rule == "") {
			t.Errorf("%s: %+v", name, d)
		}
		if tt.rule != "" && (d.Code != sbxerr.EgressECH || d.Rule != tt.rule || !strings.Contains(d.Reason, "a.test:443") || !strings.Contains(d.Remedy, "--allow-ech")) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// A word for ECH allows no name.
func TestDecideECHOfARefusedName(t *testing.T) {
	d := mustCompile(t, Spec{Mode: Allow, Allow: []string{"a.test"}, AllowECH: true}).DecideECH("b.test", 443)
	if d.Allowed || d.Code != sbxerr.EgressDenied {
		t.Errorf("%+v", d)
	}
}

func TestECHNeedsANetwork(t *testing.T) {
	_, err := Compile(Spec{AllowECH: true})
	if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), "--allow-ech") {
		t.Errorf("%v", err)
	}
}
