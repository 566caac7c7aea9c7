package policy

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// home is a host with two public addresses of its own. About 9.9.9.13 nobody knows.
func home(addr netip.Addr) (bool, error) {
	switch addr.String() {
	case "9.9.9.13":
		return false, errors.New("no answer")
	case "9.9.9.1", "2a00::1":
		return true, nil
	}
	return false, nil
}

// The host's own addresses are reached as private ones are: by a rule that says so.
func TestHostsOwn(t *testing.T) {
	p, err := Compile(Spec{
		Mode: Open, Allow: []string{"near.test:22,private", "9.9.9.0/24:23", "9.9.9.0/24:24,private"}, Deny: []string{"9.9.9.66"},
		Map: map[string]string{"mapped.test": "9.9.9.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, own, unknown := netip.MustParseAddr("9.9.9.2"), netip.MustParseAddr("9.9.9.1"), netip.MustParseAddr("9.9.9.13")
	ownV6 := netip.MustParseAddr("2a00::1")
	here := p.On(home)
	for _, tc := range []struct {
		name    Name // empty: without one
		addr    netip.Addr
		port    uint16
		allowed bool // here; anywhere else all are
		private bool
		code    sbxerr.Code
		needs   string
	}{
		{name: "a.test", addr: elsewhere, port: 22, allowed: true},
		{name: "near.test", addr: elsewhere, port: 22, allowed: true},
		{name: "a.test", addr: own, port: 22, private: true, code: sbxerr.EgressAddress, needs: "a.test:22,private"},
		{name: "a.test", addr: ownV6, port: 22, private: true, code: sbxerr.EgressAddress, needs: "a.test:22,private"},
		{name: "a.test", addr: own, port: 23, private: true, code: sbxerr.EgressAddress, needs: "a.test:23,private"},
		{name: "a.test", addr: own, port: 24, allowed: true, private: true},
		{name: "near.test", addr: own, port: 22, allowed: true, private: true},
		{name: "near.test", addr: ownV6, port: 22, allowed: true, private: true},
		{name: "mapped.test", addr: own, port: 80, allowed: true},
		{name: "a.test", addr: unknown, port: 22, code: sbxerr.EgressAddress},
		{name: "near.test", addr: unknown, port: 22, code: sbxerr.EgressAddress},
		{addr: elsewhere, port: 23, allowed: true},
		{addr: own, port: 23, code: sbxerr.EgressDenied, needs: "9.9.9.1:23,private"},
		{addr: own, port: 24, allowed: true, private: true},
		{addr: unknown, port: 24, code: sbxerr.EgressDenied},
	} {
		decide := func(p *Policy) Decision {
			if tc.name == "" {
				return p.DecideAddress(tc.addr, tc.port)
			}
			return p.DecideResolved(tc.name, tc.port, tc.addr)
		}
		if d := decide(p); !d.Allowed || d.Private {
			t.Errorf("anywhere else, %s, %s, %d: %+v", tc.name, tc.addr, tc.port, d)
		}
		if d := decide(here); d.Allowed != tc.allowed || d.Private != tc.private || d.Code != tc.code || d.Needs != tc.needs {
			t.Errorf("%s, %s, %d: %+v", tc.name, tc.addr, tc.port, d)
		}
	}
	if p.local != nil {
		t.Error("the policy itself was changed")
	}
	if none := (*Policy)(nil).On(home); none.Mode() != None || none.DecideAddress(elsewhere, 23).Allowed {
		t.Error("no policy allows something")
	}
}
