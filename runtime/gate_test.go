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
	p, err := g.enter()
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
	if _, err := g.enter(); sbxerr.Of(err) != sbxerr.Busy {
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
	if n := g.queued.Load(); n != 0 || len(g.slots) != 0 {
		t.Errorf("%d are queued in the end, %d through", n, len(g.slots))
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
	if n := g.queued.Load(); n != 0 {
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
	if len(f.making.slots) != 0 {
		t.Error("what is one too many keeps its place")
	}
}
