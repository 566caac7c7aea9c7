package runtime

import (
	"context"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/sbxerr"
)

// peer lets the user 1000 in, and is the context of its calls.
func (f *fixture) peer(t *testing.T) context.Context {
	t.Helper()
	rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	return peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 0))
}

// inside is the context of calls from inside of a new sandbox of ctx's caller.
func (f *fixture) inside(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	info, err := f.Create(ctx, CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s := f.sandboxes[info.ID]
	budget := peer.DefaultBudget(s.record.Limits.peer())
	s.update(func() { s.record.Nested = &budget })
	c, _ := peer.FromContext(ctx)
	return peer.NewContext(ctx, c.In(info.ID))
}

// What the grant adds to a request is no setting of it: a repeated one means the
// same sandbox, whoever asks.
func TestRepeatedCreateOfWhoIsNotRoot(t *testing.T) {
	f := newFixture(t)
	user := f.peer(t)
	for who, ctx := range map[string]context.Context{
		"a peer": user, "a child": f.inside(t, user),
	} {
		for _, r := range []CreateRequest{{Name: "e", Ensure: true}, {Key: "k"}} {
			first, err := f.Create(ctx, r)
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			if again, err := f.Create(ctx, r); err != nil || again.ID != first.ID {
				t.Errorf("%s: %+v again: %v", who, r, err)
			}
			r.TTL = ptr(time.Minute)
			_, err = f.Create(ctx, r)
			wantError(t, err, sbxerr.Exists, "other settings: ttl")
			if _, err := f.Remove(ctx, first.ID, true); err != nil {
				t.Error(err)
			}
		}
	}
}

// An older daemon kept what the grant added with what was asked for.
func TestRepeatedCreateAfterAnOlderDaemon(t *testing.T) {
	f := newFixture(t)
	ctx := f.peer(t)
	r := CreateRequest{Name: "e", Ensure: true}
	first, err := f.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	s := f.sandboxes[first.ID]
	s.update(func() { s.record.Settings.TTL = ptr(peer.DefaultTTL) })
	if again, err := f.Create(ctx, r); err != nil || again.ID != first.ID {
		t.Errorf("again: %v", err)
	}
}
