package runtime

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// TestExpiredIsNotNever: who asks for a sandbox that was removed because its time
// was over hears that; whoever could not see it does not.
func TestExpiredIsNotNever(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := callerContext(t)
	short := 20 * time.Millisecond
	for name, tt := range map[string]struct {
		r    plan.CreateRequest
		want string
	}{
		"old":  {plan.CreateRequest{Name: "old", TTL: &short}, "time to live is over"},
		"idle": {plan.CreateRequest{Name: "idle", IdleTimeout: &short}, "idle for too long"},
	} {
		id := f.session(t, tt.r).ID
		eventually(t, "it is removed", func() bool { return f.byID(id) == nil })
		for _, ref := range []string{name, id, id[:6]} {
			_, err := f.Inspect(ctx, ref)
			errtest.Want(t, err, sbxerr.NotFound, fmt.Sprintf("sandbox %q was removed at 20", ref))
			errtest.Want(t, err, sbxerr.NotFound, tt.want)
			if !strings.Contains(sbxerr.RemedyOf(err), "caisson update --ttl") {
				t.Errorf("remedy %q", sbxerr.RemedyOf(err))
			}
			_, err = f.Inspect(peer.NewContext(t.Context(), peer.User(0, 0, nil, 0).In("another")), ref)
			if err == nil || strings.Contains(err.Error(), "removed") {
				t.Errorf("who does not see it: %v", err)
			}
			_, err = f.Inspect(f.peer(t), ref)
			errtest.Want(t, err, sbxerr.NotFound, "no sandbox")
		}
	}
	f.session(t, plan.CreateRequest{Name: "old"}) // one that lives comes first
	if _, err := f.Inspect(ctx, "old"); err != nil {
		t.Error(err)
	}
	if _, err := f.Remove(ctx, "old", true); err != nil {
		t.Error(err)
	}
	removed := f.session(t, plan.CreateRequest{})
	if _, err := f.Remove(ctx, removed.ID, true); err != nil {
		t.Error(err)
	}
	_, err := f.Inspect(ctx, removed.ID)
	errtest.Want(t, err, sbxerr.NotFound, "no sandbox")
}

func TestExpiredAreBounded(t *testing.T) {
	var x expired
	for i := range maxExpired + 10 {
		x.note(&sandbox{id: fmt.Sprintf("id-%04d", i), ending: ErrIdle})
	}
	g := rootGrant(t)
	if n := len(x.list); n != maxExpired || x.missing(g, "id-0009") != nil || x.missing(g, "id-0010") == nil || x.missing(g, fmt.Sprintf("id-%04d", maxExpired+9)) == nil {
		t.Errorf("%d are remembered", n)
	}
}

// TestExpiredOfOthers: who makes very many does not have those of others forgotten.
func TestExpiredOfOthers(t *testing.T) {
	var x expired
	x.note(&sandbox{id: "of-root", ending: ErrIdle})
	x.note(&sandbox{id: "of-root-2", ending: ErrIdle})
	for i := range 2 * maxExpired { // one for each of as many parents
		x.note(&sandbox{id: fmt.Sprintf("id-%04d", i), ending: ErrIdle, record: record{OwnerUID: 1000, Parent: fmt.Sprintf("p-%04d", i)}})
	}
	g := rootGrant(t)
	if n := len(x.list); n != maxExpired || x.missing(g, "of-root") == nil || x.missing(g, "of-root-2") == nil || x.missing(g, fmt.Sprintf("id-%04d", maxExpired)) != nil {
		t.Errorf("%d are remembered", n)
	}
}
