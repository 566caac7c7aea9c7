package runtime

import (
	"context"
	"errors"
	"path"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
)

// Cleaned is the answer to a Clean.
type Cleaned struct {
	Processes int // that were ended
	Files     int // of /tmp that were removed, a directory as one
}

// tmpDir is the directory inside that Clean empties.
const tmpDir = "/tmp"

// Clean ends every process of a running sandbox but PID 1, with their listeners, and
// empties /tmp. Other files stay.
func (m *Manager) Clean(ctx context.Context, ref string) (Cleaned, error) {
	defer m.Busy()()
	s, err := m.find(ctx, ref)
	if err != nil {
		return Cleaned{}, err
	}
	if s.kept().unisolated() {
		return Cleaned{}, sbxerr.WithRemedy(sbxerr.Unisolated, "runtime.clean", errors.New("the sandbox has isolation none: /tmp is the host's"), "remove the sandbox, and make another one")
	}
	defer s.keeper.Awake(ctx)()
	var done Cleaned
	if done.Processes, err = m.endOthers(ctx, s); err != nil {
		return done, err
	}
	done.Files, err = m.emptyTmp(ctx, ref)
	return done, errors.Join(err, m.opts.Events.Confirm(ctx, s.kept().event(events.SandboxCleaned, events.Data{})))
}

// endOthers kills what runs in s but PID 1. No pause comes in between.
func (h *host) endOthers(ctx context.Context, s *sandbox) (int, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if _, err := s.accepting(); err != nil {
		return 0, err
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	n, err := h.killOthers(ctx, s)
	return n, s.orEnded(err)
}

// killOthers is endOthers with s.changing held.
func (h *host) killOthers(ctx context.Context, s *sandbox) (n int, err error) {
	group, err := h.group(s.id)
	if err != nil {
		return 0, err
	}
	kill := func() (err error) { n, err = group.KillOthers(ctx, s.process.pid); return err }
	if limits := s.kept().Limits; limits.RatesIO() { // they are lifted meanwhile
		err = h.noteChange(s, limits, kill)
	} else {
		err = kill()
	}
	return n, err
}

// emptyTmp removes what /tmp holds, as the sandbox's user.
func (m *Manager) emptyTmp(ctx context.Context, ref string) (removed int, err error) {
	access, err := m.Files(ctx, ref)
	if err != nil {
		return 0, err
	}
	for {
		list, more, err := access.ListDir(ctx, tmpDir, 1)
		if err != nil {
			return removed, err
		}
		var errs []error
		for _, f := range list {
			if err := access.Remove(ctx, path.Join(tmpDir, path.Base(f.Path)), true); err != nil && !errors.Is(err, sbxerr.FileAbsent) {
				errs = append(errs, err)
				continue
			}
			removed++
		}
		if !more || len(errs) > 0 {
			return removed, errors.Join(errs...)
		}
	}
}
