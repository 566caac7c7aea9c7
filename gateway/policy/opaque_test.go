package policy

import (
	"slices"
	"strings"
	"testing"
)

// Rules add up: that of a name, of a wildcard around it, and one with another option.
func TestOpaque(t *testing.T) {
	p := mustCompile(t, Spec{
		Mode: Allow, Map: map[string]string{"m.test": "10.0.0.1"}, Deny: []string{"no.a.test"},
		Allow: []string{"*.a.test:443+22,opaque", "b.a.test", "c.test", "c.test:443,opaque", "d.corp:443,private", "d.corp:443,opaque", "m.test:443,opaque", "e.test"},
	})
	for _, tt := range []struct {
		name Name
		port uint16
		want bool
		rule string
	}{
		{"x.a.test", 443, true, "allow *.a.test:22+443,opaque"},
		{"b.a.test", 443, true, "allow *.a.test:22+443,opaque"},
		{"b.a.test", 80, false, "allow b.a.test:80+443"},
		{"x.a.test", 22, false, "allow *.a.test:22+443,opaque"}, // not read anyway
		{"c.test", 443, true, "allow c.test:443,opaque"},
		{"d.corp", 443, true, "allow d.corp:443,private"},
		{"m.test", 443, true, "map m.test=10.0.0.1"},
		{"m.test", 80, false, "map m.test=10.0.0.1"},
		{"no.a.test", 443, true, "deny no.a.test"}, // which counts
		{"e.test", 443, false, "allow e.test:80+443"},
	} {
		if got := p.Opaque(tt.name, tt.port); got != tt.want {
			t.Errorf("%s:%d: opaque %v", tt.name, tt.port, got)
		}
		if d := p.Decide(tt.name, tt.port); d.Rule != tt.rule || CitesOpaque(d.Rule) != strings.HasSuffix(tt.rule, ",opaque") {
			t.Errorf("%s:%d by %q, want %q", tt.name, tt.port, d.Rule, tt.rule)
		}
	}
	if (&Policy{}).Opaque("a.test", 443) || p.On(nil).Opaque("e.test", 443) {
		t.Error("opaque without a rule")
	}
	if lines := p.Explain(); !slices.ContainsFunc(lines, func(l Line) bool {
		return l.Rule == "allow c.test:443,opaque" && strings.Contains(l.Effect, "unread on ports 80 and 443: a client there need not name its host, by addresses that are public")
	}) {
		t.Errorf("%q", lines)
	}
}

// The rule that is proposed does what it is proposed for.
func TestNeededOpaque(t *testing.T) {
	for _, tt := range []struct {
		spec Spec
		name Name
		port uint16
		want string
	}{
		{Spec{Mode: Allow, Allow: []string{"a.test"}}, "a.test", 443, "a.test:443,opaque"},
		{Spec{Mode: Open}, "a.test", 443, "a.test:443,opaque"},
		{Spec{Mode: Allow, Allow: []string{"nas.corp,private"}}, "nas.corp", 443, "nas.corp:443,private,opaque"},
		{Spec{Mode: Open}, "a.test", 22, ""},
		{Spec{Mode: Allow, AirGapped: true}, "a.test", 443, ""},
		{Spec{Mode: Allow, AirGapped: true, Map: map[string]string{"a.test": "10.0.0.1"}}, "a.test", 443, "a.test:443,opaque"},
		{Spec{Mode: Open}, "", 443, ""},
	} {
		got := mustCompile(t, tt.spec).NeededOpaque(tt.name, tt.port)
		if got != tt.want {
			t.Errorf("%+v %s:%d: %q, want %q", tt.spec, tt.name, tt.port, got, tt.want)
		}
		if tt.spec.Allow = append(tt.spec.Allow, got); got != "" && !mustCompile(t, tt.spec).Opaque(tt.name, tt.port) {
			t.Errorf("%q does not do", got)
		}
	}
}
