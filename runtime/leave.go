package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Leave ends the calls that wait for something, as the daemon is to end and nobody
// to hold that up. The callers of sandboxes that are left to the next one are told to
// come back; those that are being made have grace to be there. All others end now:
// commands that have a caller are asked to first, and have grace for it, so that their
// callers hear how they ended. So do those who stop a sandbox, whose commands were
// asked already. It returns then, or when ctx ends.
func (m *Manager) Leave(ctx context.Context, grace time.Duration) {
	if m.keep.Load() {
		m.handOver()
	} else {
		m.refuse()
	}
	var all sync.WaitGroup
	for _, s := range m.all() {
		switch r := s.kept(); {
		case r.Pooled: // nobody's
		case m.keep.Load() && r.outlives():
			all.Go(func() {
				s.awaitMade(ctx, grace)
				s.awaitStop(ctx, grace)
			})
		default:
			all.Go(func() { m.endFor(ctx, s, grace) })
		}
	}
	all.Wait()
	m.handOver()
}

func (s *sandbox) awaitMade(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_ = wait(ctx, s.made) // who asked for it hears how that went
}

// awaitStop returns when s has ended, where it is being stopped: by itself within
// grace, or at once after it.
func (s *sandbox) awaitStop(ctx context.Context, grace time.Duration) {
	if s.info().State != StateStopping {
		return
	}
	short, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if wait(short, s.ended) == nil {
		return
	}
	s.end(ErrStopped)
	_ = wait(ctx, s.ended) // longer than that nobody waits
}

// endFor ends s for the callers of its commands.
func (h *host) endFor(ctx context.Context, s *sandbox, grace time.Duration) {
	if h.beginStop(s) {
		s.awaitCallers(ctx, grace)
	}
	s.end(ErrStopping)
	select {
	case <-s.ended:
	case <-s.gone: // one that was being made
	case <-ctx.Done():
	}
}

// awaitCallers asks the commands that have a caller to end, and returns when they
// have, but no later than after grace.
func (s *sandbox) awaitCallers(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	attended := slices.DeleteFunc(s.executions(), func(e *execution) bool { return e.isDone() || !e.isAttended() })
	for _, e := range attended {
		e.end(ErrStopping)
	}
	for _, e := range attended {
		if e.wait(ctx) != nil {
			return
		}
	}
}

var (
	errHandOver = sbxerr.New(sbxerr.Canceled, "runtime.leave", "the daemon stops, and the next one goes on with the sandbox")
	errOver     = sbxerr.Wrap(sbxerr.Canceled, "runtime.leave", ErrStopping)
)

// leaveCause is why a call ends before what it waits for.
func (m *Manager) leaveCause() error {
	if m.keep.Load() {
		return errHandOver
	}
	return errOver
}

// untilHandOver is ctx for a call that waits for what happens in s.
func (m *Manager) untilHandOver(ctx context.Context, s *sandbox) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() bool { return true }
	if s.kept().outlives() {
		stop = context.AfterFunc(m.leaving, func() { cancel(m.leaveCause()) })
	}
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// attachGrace is how long a command outlives its caller, who cannot come back to a
// daemon that leaves.
func (m *Manager) attachGrace() time.Duration {
	if m.leaving.Err() != nil {
		return max(m.opts.AttachGrace, m.opts.Timeouts.Remove)
	}
	return m.opts.AttachGrace
}

// leave lets go of s, which runs on: its PID 1 waits for the next daemon.
// One that is being removed meanwhile is not left.
func (m *Manager) leave(s *sandbox) {
	s.removal.Do(func() {
		m.keepRecord(s)
		m.keepUsage(s)
		if err := errors.Join(s.closeHandles(), s.closeExecs(), m.published.Close(s.id)); err != nil {
			m.log.Error("leave sandbox", "sandbox", s.id, "err", err)
		}
		m.forget(s)
	})
}

// endLeft ends s, which is left to the next daemon. That is not to take one that is
// being stopped for one that runs: what remains of it is left. A stop comes before
// or after this.
func (s *sandbox) endLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateStopping {
		s.endLocked(ErrStopped)
		return
	}
	s.endLocked(errLeft)
}

// stay has s, whose own command has ended, end here and not be left. It returns the
// commands whose ends were left to the next daemon, which has nobody to ask any more.
func (s *sandbox) stay() (alone []*execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = errMainEnded
	for _, e := range s.execs {
		if e.leftAlone {
			alone = append(alone, e)
		}
	}
	return alone
}
