package memwatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/cgroups/sockmem"
)

// nobody is a fleet without sandboxes.
type nobody struct{}

func (nobody) Watched() []Sandbox                { return nil }
func (nobody) AwaitSandbox(context.Context) bool { return false }

func newWatch() *Watch { return &Watch{fleet: nobody{}, log: slog.New(slog.DiscardHandler)} }

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
		{"many of nobody", fakeSockets{there: sockmem.Most + 1}, true, 2, false},
		{"failure", fakeSockets{err: errors.New("no")}, true, 1, true},
	} {
		w := newWatch()
		there, err := w.lookAtSockets(&tt.fake)
		if there != tt.there || (err != nil) != tt.fails || len(tt.fake.looks) != tt.looks {
			t.Errorf("%s: there %v, %v, %d looks", tt.name, there, err, len(tt.fake.looks))
		}
	}
}

// What others do on the processors does not count.
func TestProcessorTime(t *testing.T) {
	if took := processorTime(func() { time.Sleep(100 * time.Millisecond) }); took > 50*time.Millisecond {
		t.Errorf("to wait takes %s", took)
	}
	if took := processorTime(func() {
		for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
		}
	}); took == 0 || took > 150*time.Millisecond {
		t.Errorf("to work takes %s", took)
	}
}

// Of all sandboxes those end that have the most sockets, of the owners with the most.
func TestEndMost(t *testing.T) {
	const part = sockmem.Most / 8
	for _, tt := range []struct {
		name  string
		owned map[string]int // sockets, by the owner's number and the sandbox's name
		ended []string
	}{
		{"no more than may be", map[string]int{"1a": 4 * part, "2a": 4 * part}, nil},
		{"many small ones of one owner", map[string]int{"1a": part, "1b": part + 1, "1c": part, "1d": part, "1e": part, "2a": 4 * part}, []string{"1b"}},
		{"several", map[string]int{"1a": 6 * part, "1b": 5 * part, "2a": 4 * part, "3a": 1}, []string{"1a", "1b"}},
		{"in turns", map[string]int{"1a": 6 * part, "1b": 1, "2a": 5 * part, "3a": 4 * part}, []string{"1a", "2a"}},
	} {
		var left []holder
		var ended []string
		for id, n := range tt.owned {
			left = append(left, holder{Sandbox{ID: id, Owner: uint32(id[0]), End: func(cause error) {
				if !errors.Is(cause, ErrUncharged) {
					t.Errorf("%s: ended by %v", tt.name, cause)
				}
				ended = append(ended, id)
			}}, n})
		}
		newWatch().endMost(left)
		if slices.Sort(ended); !slices.Equal(ended, tt.ended) {
			t.Errorf("%s: ended %v, want %v", tt.name, ended, tt.ended)
		}
	}
}

// Sockets that outlive their sandbox slow nothing down: others may attack meanwhile.
func TestWatchSocketsOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch()
		f := &fakeSockets{there: 1, works: littleWork}
		for range 100 {
			f.held = append(f.held, map[uint64]sockmem.Held{7: {Uncharged: maxSockets + 1}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.watchSockets(ctx, f); close(done) }()
		time.Sleep(10*watchSockets - 1)
		synctest.Wait()
		if len(f.looks) != 20 { // each is repeated
			t.Errorf("%d looks, want 20", len(f.looks))
		}
		cancel()
		<-done
	})
}

// The watch sleeps while there is no socket.
func TestWatchSocketsSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch()
		f := &fakeSockets{wake: make(chan struct{}), works: littleWork}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.watchSockets(ctx, f); close(done) }()
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

// What is not counted is known once the watch has tried to count it.
func TestUncounted(t *testing.T) {
	why := errors.New("no types")
	w := &Watch{opened: make(chan struct{}), failure: why}
	if err := w.Uncounted(); err != nil {
		t.Errorf("before it is known: %v", err)
	}
	close(w.opened)
	if err := w.Uncounted(); !errors.Is(err, why) {
		t.Errorf("where it is not counted: %v", err)
	}
	if err := (*Watch)(nil).Uncounted(); err != nil {
		t.Errorf("without a watch: %v", err)
	}
}
