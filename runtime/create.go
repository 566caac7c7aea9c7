package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson/sbxerr"
)

// The time that the steps of a sandbox's life may take.
const (
	createTimeout  = 60 * time.Second
	initTimeout    = 15 * time.Second
	destroyTimeout = 60 * time.Second
)

var errCreateTimeout = sbxerr.New(sbxerr.Deadline, "runtime.create", "the sandbox was not ready within %s", createTimeout)

// create makes a sandbox whose PID 1 waits for commands, or fails and leaves
// nothing behind.
func (m *Manager) create(ctx context.Context, r Request, detached bool) (_ *sandbox, err error) {
	p, err := m.planner(ctx).plan(r)
	if err != nil {
		return nil, err
	}
	s := newSandbox(p, p.record(time.Now(), detached))
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.endBy(end)
	if err := m.admit(s); err != nil { // not yet deferred: a taken name must not destroy its holder
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.destroy(ctx, s))
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, createTimeout, errCreateTimeout)
	defer cancel()
	for _, st := range m.stages {
		if err := s.timed(st.name, func() error { return st.create(ctx, s) }); err != nil {
			return nil, stageError(ctx, st.name, s, err)
		}
	}
	s.setState(StateRunning)
	m.log.Debug("sandbox created", "sandbox", p.id, "stages", s.stages)
	return s, nil
}

// stageError names the stage and keeps the reason for which ctx ended, which
// is what the caller wants to know, not that some call was interrupted.
func stageError(ctx context.Context, name string, s *sandbox, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		code := sbxerr.Of(cause)
		if code == sbxerr.Unknown {
			code = sbxerr.Canceled
		}
		err = sbxerr.Wrap(code, "runtime.create", errors.Join(cause, err))
	}
	return fmt.Errorf("create %s of sandbox %s: %w", name, s.plan.id, err)
}

// startInit starts PID 1. Nothing of the caller's runs before the last stage
// is done.
func (m *Manager) startInit(ctx context.Context, s *sandbox) error {
	return m.engine.Start(ctx, s.plan.id)
}

// awaitInit waits for PID 1's word, no longer than PID 1 lives.
func (m *Manager) awaitInit(ctx context.Context, s *sandbox) error {
	const op = "runtime.boot"
	ctx, stop := context.WithTimeoutCause(ctx, initTimeout, sbxerr.New(sbxerr.Init, op, "caisson-init did not connect within %s", initTimeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := sbxerr.New(sbxerr.Init, op, "caisson-init ended before it connected")
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if s.process.wait(ctx) == nil {
			cancel(ended)
		}
	}()
	var err error
	s.init, err = s.listener.Accept(ctx, s.process.pid)
	cancel(nil)
	<-watched
	if err != nil && errors.Is(context.Cause(ctx), ended) {
		return ended // not that the caller cancelled
	}
	return err
}

// destroy removes all of s, on which nobody works any more, and forgets it. It
// is the failure path of create, the end of every run, and what Remove does.
// Whoever comes second waits for the first and gets the same answer. What could
// not be removed is found by Cleanup.
func (m *Manager) destroy(ctx context.Context, s *sandbox) error {
	s.release()
	s.removal.Do(func() {
		s.setState(StateRemoving)
		s.removeErr = errors.Join(s.closeHandles(), s.closeOutput(), m.teardown(ctx, s.plan.id, 0))
		if s.removeErr != nil {
			m.log.Error("remove sandbox", "sandbox", s.plan.id, "err", s.removeErr)
		}
		m.forget(s)
	})
	return s.removeErr
}

// retire frees what an exited sandbox no longer needs.
func (m *Manager) retire(ctx context.Context, s *sandbox) error {
	return errors.Join(s.closeHandles(), m.teardown(ctx, s.plan.id, keptStages))
}

// teardown removes the stages of id, newest first, down to the first keep ones.
// It goes on past failures, but keeps what guards the rest until the rest is
// gone, so that nothing is used again half dead. It is the only teardown.
func (m *Manager) teardown(ctx context.Context, id string, keep int) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), destroyTimeout,
		sbxerr.New(sbxerr.Deadline, "runtime.remove", "sandbox %s was not gone within %s", id, destroyTimeout))
	defer cancel()
	var errs []error
	for i, st := range slices.Backward(m.stages) {
		if i < keep {
			break
		}
		if st.remove == nil || (st.guard && len(errs) > 0) {
			continue
		}
		if err := st.remove(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("remove %s of sandbox %s: %w", st.name, id, err))
		}
	}
	return errors.Join(errs...)
}
