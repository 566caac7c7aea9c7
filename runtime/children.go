package runtime

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var errParentEnded = errors.New("the sandbox that made it ended")

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
