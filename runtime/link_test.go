package runtime

import (
	"context"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A link is between sandboxes of one owner, to a port that is exposed, and means the
// sandbox that is there now.
func TestResolveLinks(t *testing.T) {
	m := newTestManager()
	known(t, m,
		record{ID: idA1, Name: "db", OwnerUID: 1000, Exposed: []uint16{5432}},
		record{ID: idA2, Name: "ended", OwnerUID: 1000, Exposed: []uint16{5432}},
		record{ID: idB, Name: "mine", Exposed: []uint16{5432}})
	for _, s := range m.sandboxes {
		s.setState(StateRunning)
	}
	m.sandboxes[idA2].setState(StateStopping)
	rule := peer.Rule{UIDs: []uint32{1000, 1001}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	var err error
	if m.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid        uint32
		link, word string // of the refusal; empty: it is one
	}{
		{1000, "db=db:5432", ""},
		{1000, "db=" + idA1 + ":5432", ""},
		{0, "db=mine:5432", ""},
		{1001, "db=db:5432", "no sandbox"},
		{0, "db=db:5432", "another's"},
		{1000, "db=mine:5432", "no sandbox"},
		{1000, "db=ended:5432", "is stopping"},
		{1000, "db=db:5433", "does not expose port 5433"},
		{1000, "db=db:70000", "is not NAME=SANDBOX:PORT"},
		{1000, "db=db", "is not NAME=SANDBOX:PORT"},
		{1000, "db:5432", "is not NAME=SANDBOX:PORT"},
		{1000, "a.b=db:5432", "has a dot"},
	} {
		ctx := peer.NewContext(t.Context(), peer.User(tt.uid, tt.uid, nil, 0))
		g, err := m.grant(ctx)
		if err != nil {
			t.Fatal(err)
		}
		links, err := m.resolveLinks(ctx, g, []string{tt.link})
		if tt.word == "" {
			if l, ok := links["db"]; err != nil || !ok || l.Port != 5432 || l.Sandbox != idA1 && l.Sandbox != idB {
				t.Errorf("uid %d, %s: %+v, %v", tt.uid, tt.link, links, err)
			}
			continue
		}
		errtest.Want(t, err, sbxerr.NetPolicy, tt.word)
	}
	ctx := callerContext(t)
	_, err = m.resolveLinks(ctx, rootGrant(t), []string{"db=mine:5432", "db=mine:5432"})
	errtest.Want(t, err, sbxerr.NetPolicy, "linked twice")
	_, err = m.resolveLinks(ctx, rootGrant(t), make([]string, maxLinks+1))
	errtest.Want(t, err, sbxerr.NetPolicy, "more than 64")
}

// Who links wants a network, and needs the right to have one: with it come the names
// that the operator mapped.
func TestLinkedNetwork(t *testing.T) {
	f, gateway := newPublishing(t)
	var err error
	rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(context.Background(), peer.User(1000, 1000, nil, 0))
	info, err := f.Create(ctx, plan.CreateRequest{Name: "db", Expose: []uint32{5432}})
	if err != nil || len(info.Exposed) != 1 || len(gateway.published[info.ID].Exposed) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	_, err = f.Create(ctx, plan.CreateRequest{Links: []string{"db=db:5432"}})
	errtest.Want(t, err, sbxerr.Peer, "not granted")
	_, err = f.Create(ctx, plan.CreateRequest{Expose: []uint32{53, 70000}})
	errtest.Want(t, err, sbxerr.Config, "expose 53", "expose 70000")
}

// Rules may change; links stay.
func TestLinksOutliveUpdates(t *testing.T) {
	m := newTestManager()
	rec := record{Profile: plan.DefaultProfile, Network: netns.ModeAllow, Asked: plan.NetworkRequest{Mode: "allow", Links: map[string]policy.Link{"db": {Sandbox: idA1, Port: 5432}}}}
	next, err := m.changeNetwork(rec, UpdateRequest{Allow: &Rules{Rules: []string{"a.example"}}})
	if err != nil || len(next.Policy.Links) != 1 || strings.Join(next.Policy.Allow, " ") != "a.example" {
		t.Errorf("%+v, %v", next.Policy, err)
	}
}
