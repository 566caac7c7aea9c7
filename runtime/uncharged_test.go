package runtime

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups/sockmem"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/seccomp"
)

// fakeSockets answers with what a test says.
type fakeSockets struct {
	there int // sockets
	held  []map[uint64]sockmem.Held
	err   error
	looks []bool // whether each was to arm

	worked, works time.Duration // so far, and from each look at it to the next
	workedErr     error

	wake chan struct{}
}

func (f *fakeSockets) Look(arm bool) (map[uint64]sockmem.Held, int, error) {
	f.looks = append(f.looks, arm)
	if len(f.held) == 0 {
		return nil, f.there, f.err
	}
	held := f.held[0]
	f.held = f.held[1:]
	return held, f.there, f.err
}

func (f *fakeSockets) Wait(ctx context.Context) error {
	select {
	case <-f.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fakeSockets) Worked() (time.Duration, error) {
	f.worked += f.works
	return f.worked, f.workedErr
}

func (f *fakeSockets) Close() error { return nil }

// Nobody is ended for one wrong sum, and only an armed look finds no sockets.
func TestLookAtSockets(t *testing.T) {
	much := map[uint64]sockmem.Held{7: {Uncharged: maxSockets + 1}}
	for _, tt := range []struct {
		name  string
		fake  fakeSockets
		there bool
		looks int
		fails bool
	}{
		{"none", fakeSockets{}, false, 2, false},
		{"little", fakeSockets{there: 1, held: []map[uint64]sockmem.Held{{7: {Uncharged: maxSockets}}}}, true, 1, false},
		{"wrong once", fakeSockets{there: 1, held: []map[uint64]sockmem.Held{much, {}}}, true, 2, false},
		{"much of nobody", fakeSockets{there: 1, held: []map[uint64]sockmem.Held{much, much}}, true, 2, true},
		{"failure", fakeSockets{err: errors.New("no")}, true, 1, true},
	} {
		m := &Manager{sandboxes: map[string]*sandbox{}}
		there, err := m.lookAtSockets(&tt.fake)
		if there != tt.there || (err != nil) != tt.fails || len(tt.fake.looks) != tt.looks {
			t.Errorf("%s: there %v, %v, %d looks", tt.name, there, err, len(tt.fake.looks))
		}
	}
}

// Sockets that outlive their sandbox slow nothing down: others may attack meanwhile.
func TestWatchSocketsOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{sandboxes: map[string]*sandbox{}}
		m.log = slog.New(slog.DiscardHandler)
		f := &fakeSockets{there: 1, works: littleWork}
		for range 100 {
			f.held = append(f.held, map[uint64]sockmem.Held{7: {Uncharged: maxSockets + 1}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.watchSockets(ctx, f); close(done) }()
		time.Sleep(10*watchSockets - 1)
		synctest.Wait()
		if len(f.looks) != 20 { // each is repeated
			t.Errorf("%d looks, want 20", len(f.looks))
		}
		cancel()
		<-done
	})
}

// Where sockets are not counted, sandboxes are refused more and the doctor tells why.
func TestUncounted(t *testing.T) {
	why := sbxerr.New(sbxerr.SocketMemory, "op", "no types")
	m := &Manager{}
	strict, err := seccomp.Lookup("strict")
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Sandbox{Seccomp: strict}
	for _, tt := range []struct {
		name    string
		failure error
		opened  bool
		refuses bool
	}{
		{"counted", nil, true, false},
		{"not counted", why, true, true},
		{"not known yet", why, false, false}, // nobody makes a sandbox before
	} {
		m.memory = &memoryWatch{opened: make(chan struct{}), failure: tt.failure}
		if tt.opened {
			close(m.memory.opened)
		}
		refuses := !reflect.DeepEqual(m.refuseUncounted(p), p)
		checks := m.memory.checks()
		if refuses != tt.refuses || (len(checks) == 1) != tt.refuses {
			t.Errorf("%s: refuses more: %v, %+v", tt.name, refuses, checks)
		}
		for _, c := range checks {
			if c.Status != "warn" || c.Code != "SBX-504" || c.Remedy == "" || !strings.Contains(c.Detail, "no types") {
				t.Errorf("%s: %+v", tt.name, c)
			}
		}
	}
}

// The watch sleeps while there is no socket.
func TestWatchSocketsSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{sandboxes: map[string]*sandbox{}}
		f := &fakeSockets{wake: make(chan struct{}), works: littleWork}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.watchSockets(ctx, f); close(done) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(f.looks) != 2 || f.looks[0] || !f.looks[1] {
			t.Errorf("looks in an hour without sockets: %v", f.looks)
		}
		f.there = 1
		f.wake <- struct{}{}
		time.Sleep(10*watchSockets - 1)
		synctest.Wait()
		if n := len(f.looks) - 2; n != 10 {
			t.Errorf("%d looks with a socket, want 10", n)
		}
		cancel()
		<-done
	})
}

// Looks are left out while sandboxes do little, but not many of them, and none where that
// is not known.
func TestRestTime(t *testing.T) {
	for _, tt := range []struct {
		works time.Duration
		err   error
		looks int // of 2 * (maxRest + 1)
	}{
		{0, nil, 2},
		{littleWork / 4, nil, 6}, // a fourth, eighth, ... time
		{littleWork, nil, 22},
		{0, errors.New("no"), 22},
	} {
		f := &fakeSockets{works: tt.works, workedErr: tt.err}
		r, looks := restTime{worked: -littleWork}, 0
		for range 2 * (maxRest + 1) {
			if !r.goesOn(f) {
				looks++
			}
		}
		if looks != tt.looks {
			t.Errorf("%s of work each time, %v: %d looks, want %d", tt.works, tt.err, looks, tt.looks)
		}
	}
}

// The watch of locks rests until a sandbox comes, and when the last one is gone.
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
