package policy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	s, err := ParseSet([]string{"a.example", "*.B.example", "bücher.example", "9.9.9.0/24", "2001:db8::/32", "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[Name]bool{
		"a.example": true, "x.a.example": false, "b.example": false, "x.b.example": true, "y.x.b.example": true, "xn--bcher-kva.example": true, "example": false,
	} {
		if s.HasName(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
	for addr, want := range map[string]bool{"9.9.9.255": true, "9.9.8.1": false, "2001:db8::7": true, "10.0.0.1": true, "10.0.0.2": false} {
		if s.HasAddress(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: %t", addr, !want)
		}
	}
	if (Set{}).HasName("a.example") || (Set{}).HasAddress(netip.MustParseAddr("9.9.9.9")) {
		t.Error("the zero Set holds something")
	}
}

func TestParseSetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "is empty", "*": "covers every host", "a.example:80": "without a port", "[::1]": "without brackets", "10.0.0.1/8": "did you mean 10.0.0.0/8",
		"http://a.example/": "is a URL", "a*.example": "wildcard is the whole first label", "a.example,private": "no host name", "fe80::1%lo": "zone",
		"::ffff:10.0.0.1": "write 10.0.0.1", "127.1": "ends in a number", strings.Repeat("a", 600): "longer than 512",
	} {
		if _, err := ParseSet([]string{"a.example", text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestWorldwide(t *testing.T) {
	for name, want := range map[Name]bool{
		"a.example.com": true, "example.com": true, "a.co.uk": true, "me.github.io": true, "xn--bcher-kva.de": true,
		"com": false, "co.uk": false, "localhost": false, "printer": false, "db.corp": false, "a.localhost": false, "host.local": false, "metadata.google.internal": false,
		"router.home.arpa": false, "1.in-addr.arpa": false, "x.test": false, "x.invalid": false, "svc.cluster.local": false, "": false,
	} {
		if name.Worldwide() != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

func TestAllowsPublic(t *testing.T) {
	p, err := Compile(Spec{Mode: Allow, Allow: []string{"a.example", "b.example,private", "c.example:443,private", "c.example:22", "*.d.example:25"}, Deny: []string{"no.d.example"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[Name]bool{"a.example": true, "b.example": false, "c.example": true, "x.d.example": true, "no.d.example": false, "e.example": false} {
		if p.AllowsPublic(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
	if (*Policy)(nil).AllowsPublic("a.example") {
		t.Error("no policy allows something")
	}
}
