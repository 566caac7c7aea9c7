package runtime

import (
	"context"
	"testing"

	"github.com/caisson-run/caisson/sbxerr"
)

func TestGate(t *testing.T) {
	g := newGate(1, 1)
	release, err := g.acquire(callerContext(t))
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() {
		release, err := g.acquire(callerContext(t))
		if err == nil {
			release()
		}
		passed <- err
	}()
	for g.queued.Load() != 1 { // until it waits
		select {
		case err := <-passed:
			t.Fatalf("passed a full gate: %v", err)
		default:
		}
	}
	if _, err := g.acquire(callerContext(t)); sbxerr.Of(err) != sbxerr.Busy {
		t.Errorf("a full queue: %v", err)
	}
	release()
	if err := within(t, "its turn", passed); err != nil {
		t.Error(err)
	}
	if n := g.queued.Load(); n != 0 {
		t.Errorf("%d are queued in the end", n)
	}
}

func TestGateIsLeft(t *testing.T) {
	g := newGate(1, 1)
	release, err := g.acquire(callerContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(callerContext(t))
	cancel()
	if _, err := g.acquire(ctx); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("a caller that left: %v", err)
	}
	if n := g.queued.Load(); n != 0 {
		t.Errorf("%d are queued in the end", n)
	}
}

func TestGateWithoutBound(t *testing.T) {
	g := newGate(0, 0)
	for range 100 {
		if _, err := g.acquire(callerContext(t)); err != nil {
			t.Fatal(err)
		}
	}
}
