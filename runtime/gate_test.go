package runtime

import (
	"context"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// placeAt takes a place at g, which must have one.
func placeAt(t *testing.T, g *gate) *place {
	t.Helper()
	p, err := g.enter(holder{root: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGate(t *testing.T) {
	g := newGate(1, 1)
	first, second := placeAt(t, g), placeAt(t, g)
	if err := first.pass(callerContext(t)); err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() { passed <- second.pass(callerContext(t)) }()
	if _, err := g.enter(holder{root: true}); sbxerr.Of(err) != sbxerr.Busy {
		t.Errorf("a full queue: %v", err)
	}
	select {
	case err := <-passed:
		t.Fatalf("passed a full gate: %v", err)
	default:
	}
	first.leave()
	if err := within(t, "its turn", passed); err != nil {
		t.Error(err)
	}
	second.leave()
	if g.busy() {
		t.Error("somebody has a place in the end")
	}
}

func TestGateIsLeft(t *testing.T) {
	g := newGate(1, 1)
	defer placeAt(t, g).leave()
	waits := placeAt(t, g)
	ctx, cancel := context.WithCancel(callerContext(t))
	cancel()
	if err := waits.pass(ctx); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("a caller that left: %v", err)
	}
	waits.leave()
	if n := g.queued(); n != 0 {
		t.Errorf("%d are queued in the end", n)
	}
}

func TestGateWithoutBound(t *testing.T) {
	g := newGate(0, 0)
	for range 100 {
		p := placeAt(t, g)
		if err := p.pass(callerContext(t)); err != nil {
			t.Fatal(err)
		}
		defer p.leave()
	}
}

// TestRefusedAtTheGate: what finds no place counts neither against the most
// sandboxes nor against a quota.
func TestRefusedAtTheGate(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes, f.making = 1, newGate(1, 0)
	full := placeAt(t, f.making)
	counted := 0
	f.replace(stage{name: "rootfs", create: f.directory("rootfs", f.paths.rootfs).create, remove: func(context.Context, string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		counted = max(counted, len(f.sandboxes))
		return nil
	}})
	_, err := f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "0 requests wait", "sandboxes.queue")
	if counted != 0 {
		t.Errorf("%d sandboxes are counted while one is refused", counted)
	}
	full.leave()
	f.replace(f.directory("rootfs", f.paths.rootfs))
	f.session(t, plan.CreateRequest{})
	_, err = f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "sandboxes.max")
	if f.making.busy() {
		t.Error("what is one too many keeps its place")
	}
}

// TestGateShares: root has a part of its own and comes first; who has the fewest places comes
// before others; one user's queue leaves room for those of others.
func TestGateShares(t *testing.T) {
	const greedy, modest = 1001, 1002
	g := newGate(4, 40)
	enter := func(h holder, through bool) *place {
		t.Helper()
		p, err := g.enter(h)
		if err != nil {
			t.Fatal(err)
		}
		if p.isThrough() != through {
			t.Errorf("%+v is through: %v", h, p.isThrough())
		}
		return p
	}
	var running, waits []*place
	for range 3 {
		running = append(running, enter(holder{uid: greedy}, true))
	}
	for range 26 { // 36 are not root's, and the last 10 are for those who wait with few
		waits = append(waits, enter(holder{uid: greedy}, false))
	}
	if _, err := g.enter(holder{uid: greedy}); sbxerr.Of(err) != sbxerr.Busy {
		t.Errorf("the rest of the queue: %v", err)
	}
	modestly := enter(holder{uid: modest}, false)
	first := enter(holder{root: true}, true)
	second := enter(holder{root: true}, false)
	first.leave()
	if !second.isThrough() || modestly.isThrough() {
		t.Error("root is not the first")
	}
	second.leave() // root has its part back
	running[0].leave()
	if !modestly.isThrough() || waits[0].isThrough() {
		t.Error("who has fewer places does not come first")
	}
	modestly.leave()
	if !waits[0].isThrough() || waits[1].isThrough() {
		t.Error("the oldest does not come first")
	}
	for _, p := range append(running[1:], waits...) {
		p.leave()
	}
	if g.busy() || len(g.held) > 0 {
		t.Errorf("left: %+v", g.held)
	}
}
