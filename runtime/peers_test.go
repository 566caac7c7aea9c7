package runtime

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// peer lets the user 1000 in, and is the context of its calls.
func (f *fixture) peer(t *testing.T) context.Context {
	t.Helper()
	return f.peerWith(t, peer.DefaultQuota())
}

func (f *fixture) peerWith(t *testing.T, quota peer.Usage) context.Context {
	t.Helper()
	rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: quota}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	return peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 0))
}

// inside is the context of calls from inside of a new sandbox of ctx's caller.
func (f *fixture) inside(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	info, err := f.Create(ctx, plan.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s := f.sandboxes[info.ID]
	budget := peer.DefaultBudget(s.record.Limits.Peer())
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
		for _, r := range []plan.CreateRequest{{Name: "e", Ensure: true}, {Key: "k"}} {
			first, err := f.Create(ctx, r)
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			if again, err := f.Create(ctx, r); err != nil || again.ID != first.ID {
				t.Errorf("%s: %+v again: %v", who, r, err)
			}
			r.TTL = new(time.Minute)
			_, err = f.Create(ctx, r)
			errtest.Want(t, err, sbxerr.Exists, "other settings: ttl")
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
	r := plan.CreateRequest{Name: "e", Ensure: true}
	first, err := f.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	s := f.sandboxes[first.ID]
	s.update(func() { s.record.Settings.TTL = new(peer.DefaultTTL) })
	if again, err := f.Create(ctx, r); err != nil || again.ID != first.ID {
		t.Errorf("again: %v", err)
	}
}

// Of updates at once as many succeed as there is room for, and one that fails
// takes none.
func TestUpdatesAtOnceStayWithinTheQuota(t *testing.T) {
	const low, high, room = 128 << 20, 256 << 20, 512 << 20 // of three, one can be raised
	quota := peer.DefaultQuota()
	quota.MemoryBytes = room
	for who, caller := range map[string]func(*fixture) context.Context{
		"a peer": func(f *fixture) context.Context { return f.peerWith(t, quota) },
		"a child": func(f *fixture) context.Context {
			ctx := f.inside(t, f.peer(t))
			c, _ := peer.FromContext(ctx)
			s := f.sandboxes[c.Sandbox]
			s.update(func() { s.record.Nested.MemoryBytes = room })
			return ctx
		},
	} {
		t.Run(who, func(t *testing.T) {
			f := newFixture(t)
			ctx := caller(f)
			names := []string{"a", "b", "c"}
			for _, name := range names {
				info, err := f.Create(ctx, plan.CreateRequest{Name: name, Limits: &caissonv1.Limits{MemoryBytes: new(int64(low)), MilliCpu: new(int64(100))}})
				if err != nil {
					t.Fatal(err)
				}
				f.engine.count(t, info.ID, "memory.max", "")
			}
			for range 20 {
				if n := f.raise(ctx, t, names, high); n != 1 {
					t.Fatalf("%d of 3 were raised, in the room for one", n)
				}
				f.raise(ctx, t, names, low)
			}
			f.failToRaise(ctx, t, "a", high)
			if n := f.raise(ctx, t, names[1:], high); n != 1 {
				t.Errorf("%d were raised after a failure", n)
			}
		})
	}
}

// raise gives all of names so much memory at once, and counts which got it.
func (f *fixture) raise(ctx context.Context, t *testing.T, names []string, memory int64) (n int) {
	t.Helper()
	done := make(chan error, len(names))
	for _, name := range names {
		go func() {
			_, err := f.Update(ctx, name, UpdateRequest{Limits: &caissonv1.Limits{MemoryBytes: &memory}})
			done <- err
		}()
	}
	for range names {
		switch err := within(t, "an update", done); {
		case err == nil:
			n++
		default:
			errtest.Want(t, err, sbxerr.Busy, "memory")
		}
	}
	return n
}

// failToRaise has the kernel refuse what was granted.
func (f *fixture) failToRaise(ctx context.Context, t *testing.T, name string, memory int64) {
	t.Helper()
	s, err := f.find(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.engine.cgroups, s.id, "memory.max")); err != nil {
		t.Fatal(err)
	}
	_, err = f.Update(ctx, name, UpdateRequest{Limits: &caissonv1.Limits{MemoryBytes: &memory}})
	errtest.Want(t, err, sbxerr.Cgroup, "memory.max")
	f.engine.count(t, s.id, "memory.max", "")
}
