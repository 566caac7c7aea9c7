package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Stop ends all processes of a sandbox: TERM to its commands, and KILL to all
// that is left after the grace. Nil is the daemon's grace. What the commands
// wrote stays until Remove. One that has ended is no error. Of several stops the
// one whose grace is over first counts.
func (m *Manager) Stop(ctx context.Context, ref string, grace *time.Duration) (Info, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	wait := m.opts.StopGrace
	plan.Override(&wait, grace)
	if wait < 0 || wait > plan.MaxTimeout {
		return Info{}, plan.Invalid("grace %s: give %s, such as 10s", wait, plan.AtMostTimeout)
	}
	if m.leaving.Err() != nil && s.kept().outlives() { // nobody would wait for its end
		return Info{}, m.leaveCause()
	}
	go m.beside(s.end, func() { m.stop(context.WithoutCancel(ctx), s, wait) })
	select {
	case <-s.ended:
		if errors.Is(s.endCause(), errLeft) { // before the stop began
			return Info{}, errHandOver
		}
		return s.info(), nil
	case <-ctx.Done():
		return Info{}, sbxerr.Wrap(sbxerr.Canceled, "runtime.stop", context.Cause(ctx))
	}
}

// stop ends s, after a grace for its commands which a caller that leaves does not
// cut short. Whatever happens, s ends: one that is stopping has no other way on. It
// is left to another stop where that ends s no later. A daemon that comes after this
// one goes on with it.
func (h *host) stop(ctx context.Context, s *sandbox, grace time.Duration) {
	defer s.keeper.Awake(ctx)()
	by := now() + moment(grace)
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if h.beginStop(s) {
		if !s.leadStop(by, cancel) {
			return
		}
		h.keepRecord(s)
		h.askToEnd(ctx, s)
		if errors.Is(ctx.Err(), context.Canceled) { // by one with less grace
			return
		}
	}
	s.end(ErrStopped)
}

// leadStop makes a stop the only one of s, and reports whether it is: not where one
// is under way that ends s no later. So those whose callers leave do not add up.
func (s *sandbox) leadStop(by moment, yield func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yieldStop != nil {
		if by >= s.record.StopBy {
			return false
		}
		s.yieldStop()
	}
	s.record.StopBy, s.yieldStop = by, yield
	return true
}

// stopAgain goes on with the stop of an earlier daemon, if one was under way.
func (h *host) stopAgain(ctx context.Context, s *sandbox) {
	if by := s.kept().StopBy; by != 0 {
		go h.beside(s.end, func() { h.stop(context.WithoutCancel(ctx), s, by.Left()) })
	}
}

// beginStop lets no more commands in, and reports whether those that there are can
// be asked to end.
func (h *host) beginStop(s *sandbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending != nil {
		return false
	}
	if s.state == StateRunning {
		h.moveLocked(s, StateStopping)
	}
	return s.state == StateStopping
}
