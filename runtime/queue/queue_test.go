package queue_test

import (
	"context"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/queue"
)

// placeAt takes a place at g, which must have one.
func placeAt(t *testing.T, g *queue.Queue) *queue.Place {
	t.Helper()
	p, err := g.Enter(queue.User{Root: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestQueue(t *testing.T) {
	g := queue.New(1, 1)
	first, second := placeAt(t, g), placeAt(t, g)
	if err := first.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { passed <- second.Pass(t.Context()) }()
	if _, err := g.Enter(queue.User{Root: true}); sbxerr.Of(err) != sbxerr.Busy {
		t.Errorf("a full queue: %v", err)
	}
	select {
	case err := <-passed:
		t.Fatalf("passed a full queue: %v", err)
	default:
	}
	first.Leave()
	if err := <-passed; err != nil {
		t.Error(err)
	}
	second.Leave()
	if g.Busy() {
		t.Error("somebody has a place in the end")
	}
}

func TestPlaceIsLeft(t *testing.T) {
	g := queue.New(1, 1)
	defer placeAt(t, g).Leave()
	waits := placeAt(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := waits.Pass(ctx); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("a caller that left: %v", err)
	}
	waits.Leave()
	if n := g.Waiting(); n != 0 {
		t.Errorf("%d are queued in the end", n)
	}
}

func TestWithoutBound(t *testing.T) {
	g := queue.New(0, 0)
	for range 100 {
		p := placeAt(t, g)
		if err := p.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer p.Leave()
	}
}

// TestShares: root has a part of its own and comes first; who has the fewest places comes
// before others; one user's queue leaves room for those of others.
func TestShares(t *testing.T) {
	const greedy, modest = 1001, 1002
	g := queue.New(4, 40)
	enter := func(u queue.User, through bool) *queue.Place {
		t.Helper()
		p, err := g.Enter(u)
		if err != nil {
			t.Fatal(err)
		}
		if p.IsThrough() != through {
			t.Errorf("%+v is through: %v", u, p.IsThrough())
		}
		return p
	}
	var running, waits []*queue.Place
	for range 3 {
		running = append(running, enter(queue.User{UID: greedy}, true))
	}
	for range 26 { // 36 are not root's, and the last 10 are for those who wait with few
		waits = append(waits, enter(queue.User{UID: greedy}, false))
	}
	if _, err := g.Enter(queue.User{UID: greedy}); sbxerr.Of(err) != sbxerr.Busy {
		t.Errorf("the rest of the queue: %v", err)
	}
	modestly := enter(queue.User{UID: modest}, false)
	first := enter(queue.User{Root: true}, true)
	second := enter(queue.User{Root: true}, false)
	first.Leave()
	if !second.IsThrough() || modestly.IsThrough() {
		t.Error("root is not the first")
	}
	second.Leave() // root has its part back
	running[0].Leave()
	if !modestly.IsThrough() || waits[0].IsThrough() {
		t.Error("who has fewer places does not come first")
	}
	modestly.Leave()
	if !waits[0].IsThrough() || waits[1].IsThrough() {
		t.Error("the oldest does not come first")
	}
	for _, p := range append(running[1:], waits...) {
		p.Leave()
	}
	if g.Busy() {
		t.Error("somebody has a place in the end")
	}
}
