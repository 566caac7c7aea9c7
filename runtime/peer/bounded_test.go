package peer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// TestBounded: work that hangs is left behind when the call ends, and holds one of the places
// of its user until it is over.
func TestBounded(t *testing.T) {
	p := policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID, testUID + 1} }))
	g, other := grant(t, p, testCaller), grant(t, p, User(testUID+1, 1, nil, 1))
	over := make(chan struct{})
	hang := func() error { <-over; return nil }
	fine := func() error { return nil }
	within := func(g Grant, fn func() error) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return g.Bounded(ctx, "/srv", fn)
	}
	for range placesPerUser {
		refused(t, "hangs", within(g, hang), sbxerr.Deadline)
	}
	refused(t, "no place", within(g, fine), sbxerr.Deadline)
	if err := within(other, fine); err != nil {
		t.Errorf("another user: %v", err)
	}
	close(over)
	failed := errors.New("failed")
	if err := g.Bounded(t.Context(), "/srv", func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("with a place: %v", err)
	}
	canceled, stop := context.WithCancel(t.Context())
	stop()
	refused(t, "canceled", g.Bounded(canceled, "/srv", func() error { <-t.Context().Done(); return nil }), sbxerr.Canceled)
}
