package runtime

import (
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A user who may not name destinations may not loosen the rules of a profile either.
func TestECHNeedsAGrant(t *testing.T) {
	rule := peer.Rule{UIDs: []uint32{1000, 1001}, Profiles: []string{"web"}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	with := rule
	rule.UIDs, with.UIDs, with.Network = []uint32{1000}, []uint32{1001}, true
	f := newFixture(t)
	web := f.opts.Profiles[plan.DefaultProfile]
	web.Network = plan.Network{Mode: "open", Deny: []string{"bad.example"}}
	f.opts.Profiles["web"] = web
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule, with}); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32) context.Context { return peer.NewContext(t.Context(), peer.User(uid, uid, nil, 0)) }
	r := plan.CreateRequest{Profile: "web"}
	if _, err := f.planFor(as(1000), r); err != nil {
		t.Fatalf("the control: %v", err)
	}
	r.AllowECH = true
	if _, err := f.planFor(as(1000), r); sbxerr.Of(err) != sbxerr.Peer {
		t.Errorf("%v", err)
	}
	p, err := f.planFor(as(1001), r)
	if err != nil || !p.Policy.AllowECH {
		t.Errorf("granted: %v", err)
	}
}

// A sandbox with another word about ECH is another sandbox.
func TestEnsureComparesECH(t *testing.T) {
	have := record{Name: "a", Settings: plan.CreateRequest{Name: "a", Allow: []string{"a.example"}}}
	r := have.Settings
	r.AllowECH = true
	if err := differs(r, have, rootGrant(t)); err == nil || !strings.HasSuffix(err.Error(), "allow_ech") {
		t.Errorf("%v", err)
	}
}
