package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/sbxerr"
)

// leaveTimeout bounds the wait for results that are being kept when the daemon
// leaves: it is above what each step of that may take.
const leaveTimeout = settleTimeout + initTimeout

// HandOver ends the calls that wait for what the next daemon goes on with, where
// sandboxes are left to it: nobody is to hold up the end of this one. The callers
// are told to come back.
func (m *Manager) HandOver() {
	if m.keep.Load() {
		m.handOver()
	}
}

var errHandOver = sbxerr.New(sbxerr.Canceled, "runtime.leave", "the daemon stops, and the next one goes on with the sandbox")

// untilHandOver is ctx for a call that waits for what happens in s.
func (m *Manager) untilHandOver(ctx context.Context, s *sandbox) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() bool { return true }
	if s.kept().outlives() {
		stop = context.AfterFunc(m.leaving, func() { cancel(errHandOver) })
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
		return max(m.opts.AttachGrace, destroyTimeout)
	}
	return m.opts.AttachGrace
}

// leave lets go of s, which runs on: its PID 1 waits for the next daemon.
func (m *Manager) leave(s *sandbox) {
	m.keepRecord(s)
	if err := errors.Join(s.closeHandles(), s.closeExecs(), m.published.Close(s.id)); err != nil {
		m.log.Error("leave sandbox", "sandbox", s.id, "err", err)
	}
	m.forget(s)
}

// concludes reports whether this daemon tells how e ended. From when it leaves
// s on, the next one does: PID 1 holds the exit and the pipes for it.
func (s *sandbox) concludes(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.ending, errLeft) {
		return false
	}
	e.concluding = true
	return true
}

// finishEnds returns when all that this daemon has begun to tell of the commands
// of s, which it leaves, is kept. It reports whether the command that s is for
// was among them: then there is nothing to leave, and s ends like any other.
func (m *Manager) finishEnds(ctx context.Context, s *sandbox) (over bool) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for _, e := range s.executions() {
		if !s.isConcluding(e) {
			continue
		}
		if err := wait(ctx, e.kept); err != nil {
			m.log.Error("keep result", "sandbox", s.id, "exec", e.number(), "err", err)
			return false
		}
		over = over || s.isMain(e)
	}
	if over {
		s.update(func() { s.ending = errMainEnded })
	}
	return over
}

func (s *sandbox) isConcluding(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.concluding
}
