package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/memwatch"
)

// Close refuses new sandboxes, and ends and removes those there are, unless they
// are to be left to the next daemon. Then it takes away what New made for all of
// them.
func (m *Manager) Close(ctx context.Context) error {
	errs := []error{m.drain(ctx)}
	m.memory.Stop()
	m.usernsMu.Lock()
	defer m.usernsMu.Unlock()
	for _, ns := range m.userns {
		errs = append(errs, ns.Close())
	}
	clear(m.userns)
	if m.owners != nil {
		errs = append(errs, m.owners.Close())
	}
	if m.init != nil {
		errs = append(errs, m.init.Close())
	}
	if left, err := m.sandboxDirs(); m.keep.Load() && (err != nil || len(left) > 0) {
		m.log.Info("left sandboxes to the next daemon; without one they end", "sandboxes", len(left), "after", m.opts.OrphanGrace)
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, m.volumes.Close(), memwatch.Remove(m.paths.bpf()), cgroups.RemoveParent(ctx, m.groups, m.opts.CgroupParent), mount.DetachStage(m.paths.sandboxes()))
	return errors.Join(errs...)
}

// KeepOnExit makes Close leave the sandboxes to the next daemon, whatever the
// options say.
func (m *Manager) KeepOnExit() { m.keep.Store(true) }

// refuse lets no more sandboxes come.
func (m *Manager) refuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

func (m *Manager) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// drain ends or leaves every sandbox and lets none come.
func (m *Manager) drain(ctx context.Context) error {
	m.refuse()
	m.pools.Stop() // what waits there ends like all others
	m.templates.Close()
	stockErr := m.stock.Close()
	for _, s := range m.all() {
		m.dismiss(ctx, s)
	}
	done := make(chan struct{})
	go func() { m.work.Wait(); close(done) }()
	select {
	case <-done:
		return stockErr
	case <-ctx.Done():
		return fmt.Errorf("wait for %d sandboxes to end: %w", len(m.all()), context.Cause(ctx))
	}
}

// dismiss ends s, or leaves it where it is to survive this daemon.
func (m *Manager) dismiss(ctx context.Context, s *sandbox) {
	r, state := s.kept(), s.info().State
	stays := m.keep.Load() && r.outlives() && state != StateCreating && state != StateRemoving
	switch {
	case stays && state == StateExited:
		m.leave(s)
	case stays:
		s.endLeft()
		go m.dismissEnded(ctx, s)
	case state == StateExited:
		go m.destroy(ctx, s) // logs what fails
	default:
		s.end(ErrStopping)
		go m.dismissEnded(ctx, s)
	}
}

// dismissEnded dismisses s once more if it was ending already, for a reason for
// which it stays.
func (m *Manager) dismissEnded(ctx context.Context, s *sandbox) {
	select {
	case <-s.ended:
	case <-ctx.Done():
		return
	}
	if s.retired() {
		m.dismiss(ctx, s)
	}
}
