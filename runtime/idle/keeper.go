package idle

import (
	"context"
	"log/slog"
	"sync"
)

// Sandbox is a sandbox as its keeper sees it.
type Sandbox interface {
	// Locked calls f with its clock, and whether it runs and is not to end, under the lock that
	// guards both.
	Locked(f func(c *Clock, runs bool))
	// Use has it not be idle until done is called.
	Use() (done func())
	// Changing is held while it is paused or resumed.
	Changing() *sync.Mutex
	// SetPaused pauses or resumes it. Changing is held.
	SetPaused(ctx context.Context, paused bool) error
}

// Keeper pauses and wakes one sandbox. One that is nil does nothing.
type Keeper struct {
	sandbox Sandbox
	log     *slog.Logger
	watch   Watch  // of its samples, which come one after another
	giveUp  func() // gives up the pause that is under way; nil: none is. Guarded by the sandbox's lock.
}

// NewKeeper returns the keeper of s.
func NewKeeper(s Sandbox, log *slog.Logger) *Keeper { return &Keeper{sandbox: s, log: log} }

// Awake keeps a sandbox that is paused when it is idle from that until done is called, and wakes
// one that is. If that fails, it stays paused, and refuses what comes next.
func (k *Keeper) Awake(ctx context.Context) (done func()) {
	pauses := false
	if k != nil {
		k.sandbox.Locked(func(c *Clock, _ bool) { pauses = c.Pauses() })
	}
	if !pauses {
		return func() {}
	}
	done = k.sandbox.Use()
	asleep := false
	k.sandbox.Locked(func(c *Clock, _ bool) {
		if k.giveUp != nil {
			k.giveUp()
		}
		asleep = c.Asleep || k.giveUp != nil
	})
	if asleep {
		k.wake(ctx)
	}
	return done
}

// wake waits for a pause that is under way, and then undoes it.
func (k *Keeper) wake(ctx context.Context) {
	k.sandbox.Changing().Lock()
	defer k.sandbox.Changing().Unlock()
	asleep := false
	k.sandbox.Locked(func(c *Clock, _ bool) { asleep = c.Asleep })
	if !asleep {
		return
	}
	if err := k.sandbox.SetPaused(ctx, false); err != nil {
		k.log.Warn("wake a sandbox", "err", err)
	}
}

// Knock wakes the sandbox for a connection that came.
func (k *Keeper) Knock() { k.Awake(context.Background())() }

// Sleeps reports whether the sandbox is paused because it was idle. It wakes one that has open
// connections: they may have been told of too late, or to the daemon before this one.
func (k *Keeper) Sleeps(connections int) (asleep bool) {
	k.sandbox.Locked(func(c *Clock, _ bool) { asleep = c.Asleep })
	if asleep && connections > 0 {
		go k.Knock()
	}
	return asleep
}

// Sample takes what the sandbox did until now. In use says that it does something besides.
func (k *Keeper) Sample(ctx context.Context, now Reading, inUse bool) {
	works := k.watch.Works(now) || inUse
	due := false
	k.sandbox.Locked(func(c *Clock, runs bool) {
		if works {
			c.Touch()
		}
		due = c.isDue(runs)
	})
	if due {
		go k.pause(ctx)
	}
}

func (c *Clock) isDue(runs bool) bool {
	at := c.Over()
	return runs && c.Pauses() && at != 0 && at.Left() == 0
}

// pause pauses the sandbox if it is idle still. Whoever comes to use it has that given up.
func (k *Keeper) pause(ctx context.Context) {
	if !k.sandbox.Changing().TryLock() {
		return // the next sample tries again
	}
	defer k.sandbox.Changing().Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	due := false
	k.sandbox.Locked(func(c *Clock, runs bool) {
		if due = c.isDue(runs); due {
			k.giveUp = cancel
		}
	})
	if !due {
		return
	}
	if err := k.sandbox.SetPaused(ctx, true); err != nil {
		k.log.Debug("pause an idle sandbox", "err", err)
	}
	k.sandbox.Locked(func(*Clock, bool) { k.giveUp = nil })
}
