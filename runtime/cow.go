package runtime

import (
	"context"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Workspaces works on the copy-on-write workspaces of a fleet.
type Workspaces struct{ Fleet *Manager }

// Diff returns how the workspace of a sandbox differs from the directory of the host.
func (w Workspaces) Diff(ctx context.Context, ref string) (list []changes.Change, more bool, err error) {
	defer w.Fleet.Busy()()
	s, err := w.Fleet.findToEnter(ctx, ref)
	if err == nil {
		err = s.kept().Workspace.CheckCow(ref)
	}
	if err != nil {
		return nil, false, err
	}
	if state := s.info().State; state != StateRunning && state != StatePaused {
		return nil, false, notNow("runtime.diff", ref, state)
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	list, more, err = changes.At(ctx, mount.UpperDir(w.Fleet.paths.point(s.id, plan.CowChanges)), w.Fleet.paths.point(s.id, plan.CowLower), changes.Options{})
	return list, more, s.orEnded(sbxerr.Wrap(sbxerr.Disk, "runtime.diff", err))
}
