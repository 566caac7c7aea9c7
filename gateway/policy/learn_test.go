package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestLearn(t *testing.T) {
	siblings := func(n int, port uint16, parent string) (all []Seen) {
		for i := range n {
			all = append(all, Seen{Name: Name(fmt.Sprintf("h%d.%s", i, parent)), Port: port})
		}
		return all
	}
	internal := siblings(ManySiblings, 443, "example.com")
	for i := range internal {
		internal[i].Private = true
	}
	addr := netip.MustParseAddr
	for name, tc := range map[string]struct {
		seen []Seen
		want string
	}{
		"nothing":        {nil, ""},
		"one":            {[]Seen{{Name: "a.test", Port: 443}, {Name: "a.test", Port: 443}}, "a.test:443"},
		"ports":          {[]Seen{{Name: "a.test", Port: 443}, {Name: "a.test", Port: 22}}, "a.test:22+443"},
		"private":        {[]Seen{{Name: "db.corp", Port: 5432, Private: true}}, "db.corp:5432,private"},
		"the host's own": {[]Seen{{Address: addr("9.9.9.9"), Port: 22, Private: true}}, "9.9.9.9:22,private"},
		"addresses":      {[]Seen{{Address: addr("9.9.9.9"), Port: 22}, {Address: addr("10.0.0.1"), Port: 1}}, "10.0.0.1:1,private 9.9.9.9:22"},
		"few siblings":   {siblings(ManySiblings-1, 443, "example.com"), "h0.example.com:443 h1.example.com:443 h2.example.com:443 h3.example.com:443"},
		"many siblings":  {siblings(ManySiblings, 443, "example.com"), "*.example.com:443"},
		"private ones":   {internal, "h0.example.com:443,private h1.example.com:443,private h2.example.com:443,private h3.example.com:443,private h4.example.com:443,private"},
		"and another":    {append(siblings(ManySiblings, 443, "example.com"), Seen{Name: "example.com", Port: 443}, Seen{Name: "x.example.com", Port: 22}), "*.example.com:443 example.com:443 x.example.com:22"},
		"opaque":         {[]Seen{{Name: "a.test", Port: 443, Opaque: true}, {Name: "a.test", Port: 22}}, "a.test:22 a.test:443,opaque"},
		"opaque, hidden": {[]Seen{{Name: "nas.corp", Port: 443, Opaque: true, Private: true}}, "nas.corp:443,private,opaque"},
		"public suffix":  {siblings(ManySiblings, 443, "co.uk"), "h0.co.uk:443 h1.co.uk:443 h2.co.uk:443 h3.co.uk:443 h4.co.uk:443"},
		"customers":      {siblings(ManySiblings, 443, "github.io"), "h0.github.io:443 h1.github.io:443 h2.github.io:443 h3.github.io:443 h4.github.io:443"},
		"suffixes":       {append(siblings(ManySiblings, 443, "amazonaws.com"), Seen{Name: "s3.amazonaws.com", Port: 443}), "*.amazonaws.com:443 s3.amazonaws.com:443"},
		"other ports":    {slices.Concat(siblings(3, 443, "example.com"), []Seen{{Name: "y.example.com", Port: 22}, {Name: "z.example.com", Port: 22}}), "h0.example.com:443 h1.example.com:443 h2.example.com:443 y.example.com:22 z.example.com:22"},
		"hosts and kids": {append(siblings(ManySiblings, 443, "a.example.com"), siblings(2, 443, "example.com")...), "*.a.example.com:443 h0.example.com:443 h1.example.com:443"},
	} {
		got, err := Learn(tc.seen)
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

func TestLearnReportsWhatNoRuleAllows(t *testing.T) {
	got, err := Learn([]Seen{{Name: "a.test", Port: 443}, {Name: "co.uk", Port: 443}, {Address: netip.MustParseAddr("224.0.0.1"), Port: 1}, {Address: netip.MustParseAddr("2a00::1"), Port: 1}, {Name: "b.test"}})
	if len(got) != 1 || err == nil {
		t.Fatalf("%q, %v", got, err)
	}
	for _, want := range []string{"co.uk:443", "224.0.0.1:1", "[2a00::1]:1", "b.test:0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestLearnManyPorts(t *testing.T) {
	var seen []Seen
	for port := range uint16(200) {
		seen = append(seen, Seen{Name: "a.test", Port: port + 1})
	}
	got, err := Learn(seen)
	if err != nil || len(got) != 4 {
		t.Fatalf("%d rules, %v", len(got), err)
	}
	p := mustCompile(t, Spec{Mode: Allow, Allow: got})
	for _, s := range seen {
		if !p.Decide(s.Name, s.Port).Allowed {
			t.Errorf("%s is not allowed", s)
		}
	}
}

// FuzzLearn: the rules are a policy, and it allows all that was seen.
func FuzzLearn(f *testing.F) {
	f.Add("a.test b.test c.b.test", uint16(443), false)
	f.Add("a.e.com b.e.com c.e.com d.e.com f.e.com", uint16(22), true)
	f.Fuzz(func(t *testing.T, hosts string, port uint16, private bool) {
		var seen []Seen
		for i, host := range strings.Fields(hosts) {
			if name, err := ParseName(host); err == nil {
				seen = append(seen, Seen{Name: name, Port: port - uint16(i%2), Private: private})
			}
		}
		rules, err := Learn(seen)
		if err != nil || len(rules) > maxRules {
			return
		}
		p := mustCompile(t, Spec{Mode: Allow, Allow: rules})
		for _, s := range seen {
			if d := p.Decide(s.Name, s.Port); !d.Allowed || d.Private != private {
				t.Fatalf("%q: %s: %+v", rules, s, d)
			}
		}
	})
}
