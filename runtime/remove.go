package runtime

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Remove ends the sandbox that ref names and removes all of it. A live one is
// refused without force.
func (m *Manager) Remove(ctx context.Context, ref string, force bool) (string, error) {
	const op = "runtime.remove"
	defer m.Busy()()
	s, err := m.resolve(ctx, ref) // one that does not answer is removed too
	if err != nil {
		return "", err
	}
	state := s.info().State
	if state != StateExited && !force {
		return "", sbxerr.WithRemedy(sbxerr.State, op, errors.New("sandbox "+ref+" is "+string(state)), "wait for its end, or remove it by force: caisson rm --force "+ref)
	}
	return s.id, m.removeNow(ctx, s)
}

// removeNow ends s, live or not, and removes all of it, and what it made.
func (m *Manager) removeNow(ctx context.Context, s *sandbox) error {
	s.end(ErrRemoved)
	if err := wait(ctx, s.ended); err != nil {
		return err
	}
	return errors.Join(m.destroy(ctx, s), m.awaitDescendants(ctx, s))
}
