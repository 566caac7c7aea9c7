package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/queue"
)

// make makes the planned sandbox, whose PID 1 then waits for commands, or fails
// and leaves nothing behind. prepare sets what its record holds beyond the plan.
func (m *Manager) make(ctx context.Context, p *plan.Sandbox, prepare func(*record)) (_ *sandbox, err error) {
	r := newRecord(p, m.boot, time.Now().Round(0))
	if prepare != nil {
		prepare(&r)
	}
	s := m.newSandbox(p, r)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.endBy(end)
	place, err := m.making.Enter(queue.UserOf(p.Grant)) // first: what is refused here is not to count as a sandbox
	if err != nil {
		return nil, err
	}
	if err := m.admit(s); err != nil { // not yet deferred: a taken name must not destroy its holder
		place.Leave()
		return nil, err
	}
	defer func() {
		if err != nil {
			close(s.ended)
			err = errors.Join(err, m.destroy(ctx, s))
			close(s.made)
		}
	}()
	defer place.Leave()
	if err := place.Pass(ctx); err != nil {
		return nil, err
	}
	if err := m.runStages(ctx, s); err != nil {
		return nil, err
	}
	if err := m.cloneWorkspace(ctx, s); err != nil {
		return nil, err
	}
	if err := m.beginFollowing(ctx, s); err != nil {
		return nil, err
	}
	return s, m.begin(ctx, s)
}

// runStages makes all that s is made of.
func (m *Manager) runStages(ctx context.Context, s *sandbox) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.opts.Timeouts.Create,
		sbxerr.New(sbxerr.Deadline, "runtime.create", "the sandbox was not ready within %s (timeouts.create)", m.opts.Timeouts.Create))
	defer cancel()
	for _, st := range m.stagesOf(s.plan) {
		err := s.timed(st.name, func() error { return st.create(ctx, s) })
		if err = errors.Join(err, failpoint.At("create/"+st.name)); err != nil {
			return stageError(ctx, st.name, s, err)
		}
	}
	return nil
}

// begin has s looked after, which is known to be sound.
func (m *Manager) begin(ctx context.Context, s *sandbox) error {
	s.mu.Lock()
	s.record.Stages, s.record.Warnings = s.stages, slices.Concat(s.plan.Notes, s.warnings)
	s.record.Born, s.record.Expires = now(), in(s.plan.Request.TTL)
	s.cancel = nil
	err := interrupted(s.ending, m.completeLocked(s))
	stages := s.record.Stages
	s.mu.Unlock()
	if err != nil {
		return err
	}
	m.log.Debug("sandbox created", "sandbox", s.id, "stages", stages)
	s.rearm()
	go m.supervise(context.WithoutCancel(ctx), s)
	return nil
}

// stageError names the stage and keeps the reason for which ctx ended.
func stageError(ctx context.Context, name string, s *sandbox, err error) error {
	return fmt.Errorf("create %s of sandbox %s: %w", name, s.id, interrupted(context.Cause(ctx), err))
}

// destroy removes all of s, in which nothing runs any more, and forgets it. It
// is the failure path of create, the end of every run, and what Remove does.
// Whoever comes second waits for the first and gets the same answer. What could
// not be removed is found by Cleanup.
func (m *Manager) destroy(ctx context.Context, s *sandbox) error {
	s.removal.Do(func() {
		begin := time.Now()
		if s.retired() {
			m.keepRemoval(s)
		}
		m.move(s, StateRemoving)
		s.stripping.Lock()
		defer s.stripping.Unlock()
		stages := m.stages
		if s.kept().Stripped {
			stages = stages[:keptStages]
		}
		s.removeErr = errors.Join(s.closeHandles(), s.closeExecs(), m.removeStages(ctx, s.id, stages))
		if s.removeErr != nil {
			m.log.Error("remove sandbox", "sandbox", s.id, "err", s.removeErr)
		}
		m.emitRemoved(ctx, s, time.Since(begin))
		m.forget(s)
	})
	return s.removeErr
}

// teardown removes the stages of id, newest first, down to the first keep ones.
// It goes on past failures, but keeps what guards the rest until the rest is
// gone, so that nothing is used again half dead. It is the only teardown.
func (m *Manager) teardown(ctx context.Context, id string, keep int) error {
	return m.removeStages(ctx, id, m.stages[keep:])
}

func (h *host) removeStages(ctx context.Context, id string, stages []stage) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), h.opts.Timeouts.Remove,
		sbxerr.New(sbxerr.Deadline, "runtime.remove", "sandbox %s was not gone within %s", id, h.opts.Timeouts.Remove))
	defer cancel()
	var errs []error
	for _, st := range slices.Backward(stages) {
		if st.remove == nil || (st.guard && len(errs) > 0) {
			continue
		}
		if err := errors.Join(st.remove(ctx, id), failpoint.At("remove/"+st.name)); err != nil {
			errs = append(errs, fmt.Errorf("remove %s of sandbox %s: %w", st.name, id, err))
		}
	}
	return errors.Join(errs...)
}
