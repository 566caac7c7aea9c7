package policy

import (
	"net/netip"
	"testing"
)

// Learning may lead to the addresses of a site: to none of the host's own, and to nothing
// else that is not public. Without the word it leads to none of them.
func TestSite(t *testing.T) {
	own := func(a netip.Addr) (bool, error) { return a == netip.MustParseAddr("10.0.0.7"), nil }
	site := mustCompile(t, Spec{Mode: Open, Site: true, Deny: []string{"secret.corp", "10.9.0.0/16"}}).On(own)
	open := mustCompile(t, Spec{Mode: Open}).On(own)
	for _, tt := range []struct {
		name, addr string
		want       bool
	}{
		{"git.corp", "10.0.0.8", true},
		{"nexus", "192.168.3.4", true},
		{"com", "172.16.0.1", true},
		{"www.example.com", "fd12::1", true},
		{"git.corp", "10.0.0.7", false},
		{"git.corp", "127.0.0.1", false},
		{"git.corp", "::1", false},
		{"git.corp", "169.254.169.254", false},
		{"git.corp", "fd00:ec2::254", false},
		{"git.corp", "100.64.0.1", false},
		{"git.corp", "64:ff9b::a00:8", false},
		{"git.corp", "10.9.1.1", false},
		{"secret.corp", "10.0.0.8", false},
	} {
		addr := netip.MustParseAddr(tt.addr)
		if d := site.DecideResolved(Name(tt.name), 8080, addr); d.Allowed != tt.want || d.Allowed && !d.Private {
			t.Errorf("%s at %s: %+v", tt.name, addr, d)
		}
		if open.DecideResolved(Name(tt.name), 8080, addr).Allowed || site.DecideAddress(addr, 8080).Allowed {
			t.Errorf("%s at %s is reached without the word or the name", tt.name, addr)
		}
	}
	if mustCompile(t, Spec{Mode: Allow, Site: true}).Decide("nexus", 80).Allowed {
		t.Error("it leads somewhere in the mode allow")
	}
}
