package idle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/runtime/clock"
)

func TestWatch(t *testing.T) {
	const ms = time.Millisecond
	before := Reading{At: 10 * time.Second, CPU: time.Second, Output: 100}
	for name, tt := range map[string]struct {
		now  Reading
		want bool
	}{
		"nothing":               {Reading{At: 11 * time.Second, CPU: time.Second, Output: 100}, false},
		"what waits":            {Reading{At: 11 * time.Second, CPU: time.Second + 5*ms, Output: 100}, false},
		"CPU":                   {Reading{At: 11 * time.Second, CPU: time.Second + 6*ms, Output: 100}, true},
		"what waits for long":   {Reading{At: 20 * time.Second, CPU: time.Second + 50*ms, Output: 100}, false},
		"CPU for long":          {Reading{At: 20 * time.Second, CPU: time.Second + 51*ms, Output: 100}, true},
		"a sample that is soon": {Reading{At: 10*time.Second + 1, CPU: time.Second + 5*ms, Output: 100}, false},
		"output":                {Reading{At: 11 * time.Second, CPU: time.Second, Output: 101}, true},
		"output that went":      {Reading{At: 11 * time.Second, CPU: time.Second, Output: 1}, false},
		"a connection":          {Reading{At: 11 * time.Second, CPU: time.Second, Output: 100, Connections: 1}, true},
	} {
		var w Watch
		if !w.Works(before) {
			t.Errorf("%s: the first reading shows no work", name)
		}
		if got := w.Works(tt.now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestClock(t *testing.T) {
	c := Clock{IdleTimeout: time.Minute, IdleSince: 5, OnIdle: Pause}
	if c.Over() != 5+clock.Moment(time.Minute) || c.At(false) != c.Over() || c.At(true) != 0 {
		t.Errorf("over at %d, %d, %d", c.Over(), c.At(false), c.At(true))
	}
	c.OnIdle = ""
	if c.At(true) != c.Over() || c.Action() != Remove || c.Pauses() { // a paused one is removed, too
		t.Errorf("%d, %q", c.At(true), c.Action())
	}
	for _, never := range []Clock{{IdleSince: 5}, {IdleTimeout: time.Minute}} {
		if never.Over() != 0 {
			t.Errorf("%+v is over", never)
		}
	}
	if (Clock{OnIdle: Pause}).Action() != "" {
		t.Error("something happens without a timeout")
	}
	if c := (Clock{}); c.PausedBy(false) != "" || c.PausedBy(true) != ByCaller {
		t.Errorf("%q, %q", c.PausedBy(false), c.PausedBy(true))
	}
	if (Clock{Asleep: true}).PausedBy(true) != ByIdle {
		t.Error("it does not sleep")
	}
	busy := Clock{}
	if busy.Touch(); busy.IdleSince != 0 {
		t.Error("one in use is idle")
	}
	if c.Touch(); c.IdleSince == 5 {
		t.Error("its time did not begin anew")
	}
}

// fake is a sandbox whose pauses take as long as their context allows.
type fake struct {
	mu       sync.Mutex
	changing sync.Mutex
	clock    Clock
	users    int
	paused   bool
	pauses   int
	slow     time.Duration
	fails    error
}

func (f *fake) Locked(do func(*Clock, bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(&f.clock, !f.paused)
}

func (f *fake) Use() func() {
	f.Locked(func(c *Clock, _ bool) { f.users++; c.IdleSince = 0 })
	return func() {
		f.Locked(func(c *Clock, _ bool) {
			if f.users--; f.users == 0 {
				c.IdleSince = clock.Now()
			}
		})
	}
}

func (f *fake) Changing() *sync.Mutex { return &f.changing }

func (f *fake) SetPaused(ctx context.Context, paused bool) error {
	if paused {
		f.Locked(func(c *Clock, _ bool) { f.paused, c.Asleep = true, true; f.pauses++ })
		select {
		case <-time.After(f.slow):
			return nil
		case <-ctx.Done():
		}
	}
	if !paused && f.fails != nil {
		return f.fails
	}
	f.Locked(func(c *Clock, _ bool) { f.paused, c.Asleep = false, false; c.Touch() })
	return ctx.Err()
}

func (f *fake) isPaused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused
}

// newFake is idle for longer than it may be.
func newFake() (*fake, *Keeper) {
	f := &fake{clock: Clock{IdleTimeout: time.Duration(clock.Now() / 2), IdleSince: 1, OnIdle: Pause}}
	return f, NewKeeper(f, slog.New(slog.DiscardHandler))
}

// still is a reading in which nothing works.
var still = Reading{At: time.Hour}

func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, k := newFake()
		k.Sample(t.Context(), still, true)
		synctest.Wait()
		if f.isPaused() {
			t.Error("one in use is paused")
		}
		f.Locked(func(c *Clock, _ bool) { c.IdleSince = 1 })
		k.Sample(t.Context(), still, false)
		synctest.Wait()
		if !f.isPaused() || !k.Sleeps(0) {
			t.Fatal("it is not paused")
		}
		done := k.Awake(t.Context())
		if f.isPaused() {
			t.Error("it is not woken")
		}
		k.Sample(t.Context(), still, false)
		synctest.Wait()
		if f.isPaused() {
			t.Error("it is paused while somebody uses it")
		}
		done()
		f.Locked(func(c *Clock, _ bool) { c.IdleSince = 1 })
		k.Sample(t.Context(), still, false)
		synctest.Wait()
		if !f.isPaused() {
			t.Error("it is not paused again")
		}
		k.Sleeps(1)
		synctest.Wait()
		if f.isPaused() {
			t.Error("a connection does not wake it")
		}
	})
}

func TestKeeperLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(*fake){
			"removed when idle": func(f *fake) { f.clock.OnIdle = Remove },
			"never idle":        func(f *fake) { f.clock.IdleTimeout = 0 },
			"paused by a call":  func(f *fake) { f.paused = true },
			"being changed":     func(f *fake) { f.changing.Lock() },
		} {
			f, k := newFake()
			change(f)
			k.Sample(t.Context(), still, false)
			synctest.Wait()
			if f.pauses > 0 {
				t.Errorf("%s: it is paused", name)
			}
		}
		f, k := newFake()
		f.paused = true // by a call
		k.Awake(t.Context())()
		if !f.isPaused() {
			t.Error("what a call paused is woken")
		}
		var none *Keeper
		none.Awake(t.Context())()
	})
}

// TestKeeperGivesUp: whoever comes while the sandbox is being paused does not wait for that.
func TestKeeperGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, k := newFake()
		f.slow = time.Hour
		k.Sample(t.Context(), still, false)
		synctest.Wait()
		if f.pauses != 1 {
			t.Fatal("it is not being paused")
		}
		begin := time.Now()
		done := k.Awake(t.Context())
		if took := time.Since(begin); f.isPaused() || took != 0 {
			t.Errorf("paused %v, after %s", f.isPaused(), took)
		}
		done()
	})
}

func TestKeeperThatCannotWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, k := newFake()
		k.Sample(t.Context(), still, false)
		synctest.Wait()
		f.fails = errors.New("no")
		k.Awake(t.Context())()
		if !f.isPaused() {
			t.Error("it runs")
		}
		f.fails = nil
		k.Knock()
		if f.isPaused() {
			t.Error("it is not woken later")
		}
	})
}

// TestKeeperRaces: no use ever finds the sandbox paused.
func TestKeeperRaces(t *testing.T) {
	f, k := newFake()
	f.clock.IdleTimeout = time.Nanosecond
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				k.Sample(t.Context(), still, false)
			}
		}
	})
	paused := func() (yes bool) {
		f.Locked(func(*Clock, bool) { yes = f.pauses > 0 })
		return yes
	}
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for n := 0; n < 500 || !paused(); n++ { // on a busy machine 500 can be over before the first sample
				done := k.Awake(t.Context())
				if f.isPaused() {
					t.Error("it is paused while it is used")
				}
				done()
			}
		})
	}
	users.Wait()
	close(stop)
	all.Wait()
}
