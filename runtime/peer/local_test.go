package peer

import (
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// remotePolicy has an entry for uid 1000, and one for group 50.
func remotePolicy(t *testing.T) Policy {
	t.Helper()
	rule := rootRule()
	rule.UIDs, rule.TTL = []uint32{1000}, DefaultTTL
	grouped := rule
	grouped.UIDs, grouped.GIDs = nil, []uint32{50}
	p, err := NewPolicy([]Rule{rule, grouped})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A caller from the network has an entry by its uid alone, and is root if a key says so.
func TestRemoteGrants(t *testing.T) {
	p := remotePolicy(t)
	for _, c := range []Caller{User(7, 50, nil, 1), User(1000, 1, nil, 1), Remote(1000, 1, "ann"), Remote(0, 0, "boss")} {
		if _, err := p.Grant(c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	for _, c := range []Caller{Remote(7, 50, "group"), Remote(7, 7, "none"), Remote(1000, 1, ""), Remote(0, 0, ""), Remote(noID, 1, "x"), {UID: 1000, Key: "forged"}, {Key: "forged"}} {
		if g, err := p.Grant(c); sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s has %+v, %v", c, g.rank, err)
		}
	}
	if c := Remote(0, 0, "boss"); c.IsHostRoot() || !User(0, 0, nil, 1).IsHostRoot() || User(0, 0, nil, 1).In("box").IsHostRoot() {
		t.Error("who is root of the host")
	}
}

// What needs a process of the user on the host is refused to callers from the network, and
// granted to that process.
func TestRemoteIsNotLocal(t *testing.T) {
	p, dir := remotePolicy(t), t.TempDir()
	for _, of := range []struct {
		c    Caller
		want sbxerr.Code
	}{{User(1000, 1, nil, 1), sbxerr.Unknown}, {User(0, 0, nil, 1), sbxerr.Unknown}, {System, sbxerr.Unknown}, {Remote(1000, 1, "ann"), sbxerr.NotRemote}, {Remote(0, 0, "boss"), sbxerr.NotRemote}} {
		g, err := p.Grant(of.c)
		if err != nil {
			t.Fatal(err)
		}
		checks := map[string]error{
			"local": g.CheckLocal("x"), "name": g.NameWorkspace(dir), "bind": g.NameBind(dir), "context": RequireLocal(NewContext(t.Context(), of.c), "x"),
		}
		if of.want == sbxerr.NotRemote {
			_, checks["workspace"] = g.CheckWorkspace(t.Context(), dir, false)
			_, checks["mount"] = g.CheckBind(t.Context(), dir, false)
			checks["entry"] = g.CheckEntry(t.Context(), of.c.UID, 1, dir)
		}
		for name, err := range checks {
			if got := sbxerr.Of(err); err == nil && of.want != sbxerr.Unknown || err != nil && got != of.want {
				t.Errorf("%s of %s: %v", name, of.c, err)
			}
		}
	}
	if err := RequireLocal(t.Context(), "x"); sbxerr.Of(err) != sbxerr.Peer {
		t.Errorf("without a caller: %v", err)
	}
}
