package runtime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// AttachWorkspace gives a live sandbox of the caller's a directory of the host as its workspace,
// without a restart.
func (m *Manager) AttachWorkspace(ctx context.Context, ref string, w plan.WorkspaceRequest) (Info, error) {
	defer m.Busy()()
	s, err := m.findToEnter(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	g, err := m.grant(ctx)
	if err == nil {
		err = m.attachWorkspace(ctx, s, g, w)
	}
	if err != nil {
		return Info{}, err
	}
	return s.info(), m.confirmUpdate(ctx, s)
}

func (h *host) attachWorkspace(ctx context.Context, s *sandbox, g peer.Grant, w plan.WorkspaceRequest) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	r, state := s.kept(), s.info().State
	if !s.identity().of(g) {
		return sbxerr.WithRemedy(sbxerr.Peer, "runtime.attach", fmt.Errorf("sandbox %s is another user's, who would get your directory", r.Name), "have its owner attach it")
	}
	if state != StateRunning && state != StatePaused {
		return notNow("runtime.attach", r.Name, state)
	}
	allowed := &h.settings().Workspaces
	if g.Parent() != "" {
		allowed = nil
	}
	b, err := plan.Attachment{Workspace: w, Name: r.Name, Profile: r.Preset, Have: r.Workspace, Mounts: r.Mounts, Disk: r.Limits.DiskBytes != 0, SnapshotOnEnd: r.Settings.SnapshotOnEnd}.Mount(allowed)
	if err != nil {
		return err
	}
	p := &plan.Sandbox{ID: s.id, User: r.User, Grant: g, Request: plan.CreateRequest{Workspace: &w}, Mounts: []plan.Mount{b}}
	if r.Nested != nil {
		p.Request.Nested = &plan.NestedRequest{}
	}
	if err := h.checkBinds(ctx, p); err != nil {
		return err
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	s.update(func() { s.record.Attaching = true })
	h.keepRecord(s)
	work := func() error { return h.mountWorkspace(ctx, s, p) }
	if state == StatePaused {
		err = work()
	} else {
		err = h.whileFrozen(ctx, s, work)
	}
	if err == nil {
		return nil
	}
	if back := h.finishAttach(s); back != nil {
		s.end(back) // it is not as it was declared
	}
	if errors.Is(err, unix.ENOTEMPTY) {
		err = sbxerr.WithRemedy(sbxerr.Workspace, "runtime.attach", fmt.Errorf("sandbox %q has files of its own in %s: %w", r.Name, plan.WorkspacePath, err), "move them to another directory inside first")
	}
	return s.orEnded(err)
}

// mountWorkspace mounts the only mount of p, the workspace, in s, which stands still.
func (h *host) mountWorkspace(ctx context.Context, s *sandbox, p *plan.Sandbox) error {
	r := s.kept()
	err := errors.Join(h.eachBind(ctx, s, p), failpoint.At("attach/host"))
	if err != nil {
		return err
	}
	r.Workspace, r.Attaching, r.Held, r.CowBase = p.Request.Workspace, false, s.kept().Held, s.kept().CowBase
	r.Cwd = plan.WorkspacePath
	if r.Limits.Disks, err = h.disksOf(r); err != nil {
		return err
	}
	if err := errors.Join(h.attachLate(ctx, s, p, true), failpoint.At("attach/inside")); err != nil {
		return err
	}
	if err := h.respecify(s, r.Workspace, r); err != nil {
		return err
	}
	if err := errors.Join(h.setLimits(s, s.kept().Limits, r.Limits), failpoint.At("attach/spec")); err != nil {
		return err
	}
	s.update(func() {
		s.record.Workspace, s.record.Attaching, s.record.Cwd, s.record.Limits = r.Workspace, false, r.Cwd, r.Limits
		s.stale = true
	})
	h.keepRecord(s)
	return nil
}

// respecify has the spec of s say that its workspace is w, or none of the host.
func (h *host) respecify(s *sandbox, w *plan.WorkspaceRequest, r record) error {
	spec := w.Attached(s.spec, h.paths.sandbox(s.id), r.Limits.DiskBytes != 0)
	if err := writeRecord(h.paths.spec(s.id), spec); err != nil {
		return err
	}
	s.update(func() { s.spec = spec })
	return nil
}

// finishAttach undoes an attachment of a workspace to s that was interrupted.
func (h *host) finishAttach(s *sandbox) error {
	r := s.kept()
	if !r.Attaching {
		return nil
	}
	own := mount.Live{Target: plan.WorkspacePath}
	if r.Limits.DiskBytes != 0 {
		own.Point = filepath.Join(h.paths.disk(s.id), plan.DiskWorkspace)
	}
	err := own.Restore(s.process.file)
	for _, point := range []string{h.paths.workspace(s.id), h.paths.point(s.id, plan.CowLower), h.paths.held(s.id)} {
		err = errors.Join(err, mount.RemovePoint(point))
	}
	if err = errors.Join(err, owndir.RemoveTree(h.paths.point(s.id, plan.CowChanges)), h.respecify(s, nil, r)); err != nil {
		return err
	}
	s.update(func() { s.record.Attaching, s.record.Held, s.record.CowBase = false, nil, mount.Base{} })
	h.keepRecord(s)
	return nil
}
