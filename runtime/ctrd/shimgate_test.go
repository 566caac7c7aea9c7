package ctrd

import (
	"context"
	"errors"
	"testing"
	"time"
)

// enters reports whether fn gets in at once; else it was given up.
func enters(t *testing.T, fn func(ctx context.Context) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := fn(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

func TestShimGate(t *testing.T) {
	g := newShimGate()
	create := func(id string) func(bool) {
		t.Helper()
		made, err := g.create(t.Context(), "s", id)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	tryCreate := func(ctx context.Context) error {
		made, err := g.create(ctx, "s", "try")
		if err == nil {
			made(false)
		}
		return err
	}
	tryRemove := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			done, err := g.remove(ctx, id)
			if err == nil {
				done(false)
			}
			return err
		}
	}
	made := create("a")
	if enters(t, tryCreate) {
		t.Error("two begin in an empty shim at the same time")
	}
	made(true)
	made = create("b")
	if enters(t, tryRemove("a")) {
		t.Error("the last one is deleted while another is made")
	}
	if !enters(t, tryRemove("unknown")) {
		t.Error("what shares no shim has to wait")
	}
	made(true)
	// Of two, one may go while a third is made.
	made = create("c")
	if !enters(t, tryRemove("a")) {
		t.Error("one of two has to wait")
	}
	made(false)
	done, err := g.remove(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if !enters(t, tryCreate) {
		t.Error("a create waits for a delete that is not the last")
	}
	done(true)
	if done, err = g.remove(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	slow, err := g.remove(t.Context(), "b") // somebody else deletes it as well
	if err != nil {
		t.Fatal(err)
	}
	if enters(t, tryCreate) {
		t.Error("one is made while the last is deleted")
	}
	woken := make(chan error, 1)
	go func() { woken <- tryCreate(t.Context()) }()
	done(true)
	if enters(t, tryCreate) {
		t.Error("one is made while a delete goes on")
	}
	slow(true)
	if err := <-woken; err != nil {
		t.Errorf("a waiting create = %v", err)
	}
	if len(g.rooms)+len(g.homes) > 0 {
		t.Errorf("left: %v, %v", g.rooms, g.homes)
	}
}

func TestShimGateIdle(t *testing.T) {
	g := newShimGate()
	g.adopt("s", "a")
	idle := func() (did bool) {
		if err := g.ifIdle([]string{"x", "s"}, func() error { did = true; return nil }); err != nil {
			t.Error(err)
		}
		return did
	}
	if !idle() {
		t.Error("it is not idle")
	}
	made, err := g.create(t.Context(), "s", "b")
	if err != nil {
		t.Fatal(err)
	}
	if idle() {
		t.Error("it is idle while one is made")
	}
	made(false)
	if !idle() {
		t.Error("it is not idle again")
	}
	// An adopted one is a member: with it gone, the shim is too.
	if done, err := g.remove(t.Context(), "a"); err != nil {
		t.Error(err)
	} else if done(true); len(g.rooms)+len(g.homes) > 0 {
		t.Errorf("left: %v, %v", g.rooms, g.homes)
	}
}
