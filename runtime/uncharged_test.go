package runtime

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The sandboxes are looked at when the host's sockets grew since the last look, or
// since it was least.
func TestLookSockets(t *testing.T) {
	var now int64
	looks, answer := 0, error(nil)
	w := memoryWatch{
		sockets: func() (int64, error) { return now, nil },
		look:    func() error { looks++; return answer },
	}
	for i, step := range []struct {
		memory int64
		answer error
		looks  int
	}{
		{socketGrowth - 1, nil, 0},
		{socketGrowth, nil, 1},
		{socketGrowth + 1, nil, 1},
		{2 * socketGrowth, nil, 2},
		{0, nil, 2},
		{socketGrowth, errPaused, 3},
		{socketGrowth, nil, 4}, // the one before was left out
		{socketGrowth, nil, 4},
	} {
		now, answer = step.memory, step.answer
		if err := w.lookSockets(); !errors.Is(err, step.answer) || looks != step.looks {
			t.Errorf("step %d: %d looks, %v, want %d", i, looks, err, step.looks)
		}
	}
}

// A look that takes long is followed by a pause.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		look := paced(func() error { n++; time.Sleep(time.Millisecond); return nil })
		if err := look(); err != nil {
			t.Error(err)
		}
		time.Sleep(watchRest*time.Millisecond - 1) // in the test's own time
		if err := look(); !errors.Is(err, errPaused) || n != 1 {
			t.Errorf("%d looks, %v", n, err)
		}
		time.Sleep(time.Nanosecond)
		if err := look(); err != nil || n != 2 {
			t.Errorf("%d looks, %v", n, err)
		}
	})
}

// The watch rests until a sandbox comes, and when the last one is gone.
func TestAwaitSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{sandboxes: map[string]*sandbox{}, first: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		come := func(id string) {
			if err := m.admit(&sandbox{id: id, record: record{Name: id}, gone: make(chan struct{})}); err != nil {
				t.Error(err)
			}
		}
		var woken atomic.Int64
		go func() {
			for m.awaitSandbox(ctx) {
				woken.Add(1)
				time.Sleep(time.Second)
			}
			woken.Store(-1)
		}()
		expect := func(when string, want int64) {
			t.Helper()
			if time.Sleep(10*time.Second - 1); woken.Load() != want {
				t.Errorf("%s: woken %d times, want %d", when, woken.Load(), want)
			}
		}
		expect("without any", 0)
		come("a")
		come("b")
		expect("with two", 10)
		for id := range m.sandboxes {
			m.forget(m.sandboxes[id])
		}
		expect("with none again", 10)
		come("c")
		expect("with another", 20)
		cancel()
		expect("at the end", -1)
	})
}

func TestLockers(t *testing.T) {
	held := map[string]int{"a": maxLocks + 2, "b": maxLocks + 1, "c": maxLocks}
	for all, want := range map[bool]map[string]int{
		true:  {"a": maxLocks + 2, "b": maxLocks + 1},
		false: {"a": maxLocks + 2, "b": maxLocks + 1},
	} {
		if got := lockers(held, all); !maps.Equal(got, want) {
			t.Errorf("all %v: %v, want %v", all, got, want)
		}
	}
	few := map[string]int{"a": 3, "b": 4}
	if got := lockers(few, true); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got, want := lockers(few, false), (map[string]int{"b": 4}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := lockers(nil, false); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
