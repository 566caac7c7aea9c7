package upstream

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/gateway/policy"
)

var rules = policy.Spec{
	Mode: policy.Allow,
	Allow: []string{
		"a.example.com", "*.example.org", "inner.example.net:443,private", "both.example.net:443,private", "both.example.net:22", "intern.example.com", "x.corp.com",
		"printer", "db.corp", "metadata.google.internal", "x.home.arpa", "mapped.example.com", "9.9.9.0/24:22", "10.0.0.0/8:22,private",
	},
	Map:   map[string]string{"mapped.example.com": "9.9.9.9"},
	Links: map[string]policy.Link{"db": {Sandbox: "other", Port: 5432}},
}

func compiled(t testing.TB) (*Proxy, *policy.Policy) {
	t.Helper()
	p, err := policy.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, Spec{URL: "http://proxy.corp:3128", Except: []string{"intern.example.com", "*.corp.com", "192.0.2.0/24", "9.9.9.128/25"}}), p
}

func TestTakes(t *testing.T) {
	u, p := compiled(t)
	for target, want := range map[string]bool{
		"a.example.com:443": true, "b.example.org:80": true, "both.example.net:22": true,
		"inner.example.net:443": false, "both.example.net:443": false, // private
		"intern.example.com:443": false, "x.corp.com:443": false, "9.9.9.200:22": false, // excepted
		"printer:80": false, "db.corp:80": false, "metadata.google.internal:80": false, "x.home.arpa:80": false, // of one site
		"mapped.example.com:443": false, "db:5432": false,
		"9.9.9.9:22": true, "10.1.2.3:22": false,
	} {
		parsed, err := policy.ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Check(parsed); !d.Allowed {
			t.Fatalf("%s: %v", target, d.Err())
		}
		if got := u.TakesTarget(p, parsed); got != want {
			t.Errorf("%s: %t", target, got)
		}
		if (*Proxy)(nil).TakesTarget(p, parsed) {
			t.Errorf("%s: no proxy takes it", target)
		}
	}
}

func TestResolves(t *testing.T) {
	u, p := compiled(t)
	for name, want := range map[policy.Name]bool{
		"a.example.com": true, "b.example.org": true, "both.example.net": true, "inner.example.net": false,
		"intern.example.com": false, "printer": false, "mapped.example.com": false, "db": false, "other.example.com": false,
	} {
		if got := u.Resolves(p, name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestReserves(t *testing.T) {
	u, p := compiled(t)
	for _, tc := range []struct {
		name policy.Name
		addr string
		want bool
	}{
		{"inner.example.net", "8.8.8.8", true},
		{"db.corp", "2a00::1", true},
		{"inner.example.net", "10.0.0.1", false},
		{"inner.example.net", "9.9.9.200", false},
		{"intern.example.com", "8.8.8.8", false},
		{"mapped.example.com", "9.9.9.9", false},
	} {
		addr := netip.MustParseAddr(tc.addr)
		if got := u.Reserves(p, tc.name, addr); got != tc.want {
			t.Errorf("%s by %s: %t", tc.name, addr, got)
		}
		if (*Proxy)(nil).Reserves(p, tc.name, addr) {
			t.Errorf("%s by %s: no proxy reserves it", tc.name, addr)
		}
	}
}

func TestExplain(t *testing.T) {
	u, p := compiled(t)
	if lines := u.Explain(p); len(lines) != 1 || !strings.Contains(lines[0].Effect, "4 exceptions") {
		t.Errorf("%v", lines)
	}
	if lines := append(u.Explain(nil), (*Proxy)(nil).Explain(p)...); len(lines) != 0 {
		t.Errorf("%v", lines)
	}
}
