package runtime

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/sbxerr"
)

// Remove ends the sandbox that ref names and removes all of it. A running one
// is refused without force.
func (m *Manager) Remove(ctx context.Context, ref string, force bool) (string, error) {
	const op = "runtime.remove"
	defer m.Busy()()
	s, err := m.find(ref)
	if err != nil {
		return "", err
	}
	id := s.plan.id
	state := s.info().State
	if state != StateExited && !force {
		return "", sbxerr.WithRemedy(sbxerr.State, op, errors.New("sandbox "+ref+" is "+string(state)), "wait for its end, or remove it by force: caisson rm --force "+ref)
	}
	s.end(ErrRemoved)
	if err := wait(ctx, s.over); err != nil {
		return "", err
	}
	return id, m.destroy(ctx, s)
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Canceled, "runtime.wait", context.Cause(ctx))
	}
}

// Logs copies the kept output of the command of the sandbox that ref names.
// With Follow it goes on until the command ends.
func (m *Manager) Logs(ctx context.Context, ref string, o LogOptions, stdout, stderr io.Writer) error {
	const op = "runtime.logs"
	defer m.Busy()()
	s, err := m.find(ref)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"", "stdout", "stderr"}, o.Stream) {
		return sbxerr.New(sbxerr.Config, op, "stream %q is none of stdout, stderr", o.Stream)
	}
	out, errOut := s.outputs()
	if out == nil || errOut == nil {
		return sbxerr.New(sbxerr.State, op, "sandbox %s has not started its command yet", ref)
	}
	var wg sync.WaitGroup
	var errs [2]error
	for i, from := range []struct {
		name  string
		store *output.Store
		to    io.Writer
	}{{"stdout", out, stdout}, {"stderr", errOut, stderr}} {
		if o.Stream == "" || o.Stream == from.name {
			wg.Go(func() { errs[i] = from.store.Follow(ctx, from.to, o.Follow) })
		}
	}
	wg.Wait()
	return sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(errs[:]...))
}
