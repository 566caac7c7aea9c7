package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/plan"
)

var errParentEnded = errors.New("the sandbox that made it ended")

// createNested gives the sandbox a socket of its own, where it may have one. Who
// comes by it is this sandbox, whatever its ids are. One that an earlier daemon
// left is replaced.
func (h *host) createNested(_ context.Context, s *sandbox) error {
	r := s.kept()
	if r.Nested == nil {
		return nil
	}
	path := filepath.Join(h.paths.init(s.id), plan.NestedName)
	if err := removeFiles(path); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.nested", err)
	}
	l.SetUnlinkOnClose(false) // the stage's removal does it, also after a crash
	s.nested = l
	uid, gid := int(r.HostIDBase+r.User.UID), int(r.HostIDBase+r.User.GID)
	if err := owndir.Give(path, 0o600, uid, gid); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.nested", fmt.Errorf("give socket %q to the sandbox: %w", path, err))
	}
	h.opts.ServeNested(s.id, l)
	return nil
}

func (h *host) removeNested(_ context.Context, id string) error {
	return removeFiles(filepath.Join(h.paths.init(id), plan.NestedName))
}

// checkParentLocked refuses a child of a sandbox that is to end, or is gone: who
// ends the children that there are would not see it.
func (m *Manager) checkParentLocked(r record) error {
	if r.Parent == "" {
		return nil
	}
	if p := m.sandboxes[r.Parent]; p == nil || p.endCause() != nil {
		return sbxerr.New(sbxerr.Canceled, "runtime.nested", "%w", errParentEnded)
	}
	return nil
}

// endOrphans ends the sandboxes whose parent ended while no daemon saw it.
func (m *Manager) endOrphans(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sandboxes {
		if m.checkParentLocked(s.kept()) != nil {
			m.endChild(ctx, s)
		}
	}
}

// awaitDescendants waits until nothing is left of the sandboxes below s, which has ended.
func (m *Manager) awaitDescendants(ctx context.Context, s *sandbox) error {
	if s.kept().Nested == nil { // it made none
		return nil
	}
	for _, other := range m.all() {
		if !slices.Contains(other.kept().above(), s.id) {
			continue
		}
		if err := wait(ctx, other.gone); err != nil {
			return err
		}
	}
	return nil
}

// endChildren ends the sandboxes that s made.
func (m *Manager) endChildren(ctx context.Context, s *sandbox) {
	for _, other := range m.all() {
		if other.kept().Parent == s.id {
			m.endChild(ctx, other)
		}
	}
}

// endChild ends a sandbox whose parent ended, and has it removed, also where it had
// ended before for a reason for which it would stay.
func (m *Manager) endChild(ctx context.Context, s *sandbox) {
	s.end(errParentEnded)
	go func() {
		select {
		case <-s.ended:
		case <-s.gone: // it was not gone on with
		}
		if s.retired() {
			_ = m.destroy(ctx, s) // logs what fails
		}
	}()
}
