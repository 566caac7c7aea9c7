package runtime

import (
	"context"

	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/workspaces"
)

// Workspaces returns the service of the copy-on-write workspaces of a fleet.
func Workspaces(m *Manager) *workspaces.Service { return m.workspaces }

// workspaceFleet shows the fleet to the service of copy-on-write workspaces.
type workspaceFleet struct{ snapshotFleet }

// Workspace implements workspaces.Fleet.
func (f workspaceFleet) Workspace(ctx context.Context, ref string) (workspaces.Workspace, error) {
	s, err := f.findToEnter(ctx, ref)
	if err == nil {
		err = s.kept().Workspace.CheckCow(ref)
	}
	if err != nil {
		return workspaces.Workspace{}, err
	}
	r, state := s.kept(), s.info().State
	if state != StateRunning && state != StatePaused {
		return workspaces.Workspace{ID: s.id}, notNow("runtime.workspace", ref, state)
	}
	return workspaces.Workspace{
		ID: s.id, Name: r.Name, Dir: r.Workspace.Dir, Child: r.Parent != "", Base: r.CowBase,
		Upper: mount.UpperDir(f.paths.point(s.id, plan.CowChanges)), Lower: f.paths.point(s.id, plan.CowLower), Applied: f.paths.applied(s.id),
		Event: func(d events.Data) events.Event { return r.event(events.WorkspaceApplied, d) },
		Still: func(ctx context.Context, work func(context.Context) error) error { return f.still(ctx, s, work) },
	}, nil
}

// changeset is what a sandbox that has ended leaves of its workspace.
func (h *host) changeset(r record) workspaces.Ending {
	return workspaces.Ending{
		Changeset: workspaces.Changeset{ID: r.ID, Name: r.Name, Owner: r.OwnerUID, Dir: r.Workspace.Dir, Base: r.CowBase, Session: r.Session, Labels: r.Labels},
		Image:     h.paths.diskImage(r.ID), Point: h.paths.disk(r.ID), Upper: mount.UpperDir(h.paths.point(r.ID, plan.CowChanges)), Applied: h.paths.applied(r.ID),
	}
}

// still calls work while no process of s runs. work ends with s.
func (h *host) still(ctx context.Context, s *sandbox, work func(context.Context) error) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	switch state := s.info().State; state {
	case StateRunning:
		return s.orEnded(h.whileFrozen(ctx, s, func() error { return work(ctx) }))
	case StatePaused:
		return s.orEnded(work(ctx))
	default:
		return notNow("runtime.still", s.kept().Name, state)
	}
}
