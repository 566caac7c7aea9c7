package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// fleet saves nothing, for callers of its policy.
type fleet struct {
	Fleet
	peers peer.Policy
}

func (f fleet) CheckRoom(int64) error { return nil }

func (f fleet) Busy() func() { return func() {} }

func (f fleet) Grant(ctx context.Context) (peer.Grant, error) {
	c, _ := peer.FromContext(ctx)
	return f.peers.Grant(c)
}

func (f fleet) Still(ctx context.Context, _ string, work func(context.Context, Source) error) error {
	return work(ctx, Source{})
}

// A user has so many snapshots and no more, whether made now or at an end. Those of others, and
// root's own, do not count.
func TestSnapshotsAreBounded(t *testing.T) {
	peers, err := peer.NewPolicy([]peer.Rule{{UIDs: []uint32{7, 8}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota(), Volumes: true}})
	if err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32) context.Context { return peer.NewContext(t.Context(), peer.User(uid, uid, nil, 1)) }
	s := NewService(NewStore(t.TempDir()), fleet{peers: peers}, nil, nil, events.New(events.Options{}), func() Retention { return Retention{} }, slog.New(slog.DiscardHandler))
	s.save = func(_ context.Context, _ Source, _, file string) (plan.Snapshot, error) { return saveNothing(file) }
	create := func(uid uint32, n int) error {
		_, err := s.Create(as(uid), "box", fmt.Sprintf("s%d", n), "")
		return err
	}
	for n := range peer.MaxSnapshots {
		if err := create(7, n); err != nil {
			t.Fatalf("snapshot %d: %v", n, err)
		}
		if err := create(0, n); err != nil {
			t.Fatalf("root's snapshot %d: %v", n, err)
		}
	}
	if err := create(7, peer.MaxSnapshots); !errors.Is(err, sbxerr.Busy) {
		t.Errorf("one too many: %v", err)
	}
	g, err := peers.Grant(peer.User(7, 7, nil, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Admit(g, "later"); !errors.Is(err, sbxerr.Busy) {
		t.Errorf("one at the end: %v", err)
	}
	if err := errors.Join(create(8, 0), create(0, peer.MaxSnapshots)); err != nil {
		t.Errorf("others: %v", err)
	}
	if err := s.Remove(as(7), "s0"); err != nil {
		t.Error(err)
	}
	if err := create(7, peer.MaxSnapshots); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
}
