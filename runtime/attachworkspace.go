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

// AttachFiles gives a live sandbox of the caller's a workspace, or the directory of a snapshot, without
// a restart.
func (m *Manager) AttachFiles(ctx context.Context, ref string, r plan.AttachRequest) (Info, error) {
	defer m.Busy()()
	g, err := m.grant(ctx)
	if err != nil {
		return Info{}, err
	}
	var from *plan.Origin
	if r.Workspace == nil {
		if from, err = m.snapshots.Tree(g, r.Snapshot); err != nil {
			return Info{}, err
		}
	}
	s, err := m.findToEnter(ctx, ref)
	if err == nil {
		err = m.attachTo(ctx, s, g, r, from)
	}
	if err != nil {
		return Info{}, err
	}
	return s.info(), m.confirmUpdate(ctx, s)
}

func (h *host) attachTo(ctx context.Context, s *sandbox, g peer.Grant, asked plan.AttachRequest, from *plan.Origin) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	r, state := s.kept(), s.info().State
	if !s.identity().of(g) {
		return sbxerr.WithRemedy(sbxerr.Peer, "runtime.attach", fmt.Errorf("sandbox %s is another user's, who would get your files", r.Name), "have its owner attach it")
	}
	if state != StateRunning && state != StatePaused {
		return notNow("runtime.attach", r.Name, state)
	}
	allowed := &h.settings().Workspaces
	if g.Parent() != "" {
		allowed = nil
	}
	a := plan.Attachment{Name: r.Name, Profile: r.Preset, Have: r.Workspace, Mounts: r.Mounts, Disk: r.Limits.DiskBytes != 0, SnapshotOnEnd: r.Settings.SnapshotOnEnd, Spec: s.spec}
	p, err := a.Plan(asked, from, allowed)
	if err != nil {
		return err
	}
	p.ID, p.User, p.Grant = s.id, r.User, g
	if r.Nested != nil {
		p.Request.Nested = &plan.NestedRequest{}
	}
	if err := h.checkBinds(ctx, p); err != nil {
		return err
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	b, to := p.Mounts[0], ""
	if b.Snapshot {
		to = b.Target
	}
	s.update(func() { s.record.Attaching, s.record.AttachingTo = true, to })
	h.keepRecord(s)
	work := func() error { return h.mountAttached(ctx, s, p) }
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
		err = sbxerr.WithRemedy(sbxerr.Workspace, "runtime.attach", fmt.Errorf("sandbox %q has files of its own in %s: %w", r.Name, b.Target, err), "move them to another directory inside first")
	}
	return s.orEnded(err)
}

// mountAttached mounts the only mount of p in s, which stands still.
func (h *host) mountAttached(ctx context.Context, s *sandbox, p *plan.Sandbox) error {
	err := errors.Join(h.eachBind(ctx, s, p), failpoint.At("attach/host"))
	if err != nil {
		return err
	}
	r := s.kept()
	r.Mounts, r.Attaching, r.AttachingTo = p.MountRequests, false, ""
	if w := p.Request.Workspace; w != nil {
		r.Workspace, r.Cwd = w, plan.WorkspacePath
	}
	if r.Limits.Disks, err = h.disksOf(r); err != nil {
		return err
	}
	if err := errors.Join(h.attachLate(ctx, s, p, true), failpoint.At("attach/inside")); err != nil {
		return err
	}
	if err := h.respecify(s, p.Mounts[0].Target, &p.Mounts[0]); err != nil {
		return err
	}
	if err := errors.Join(h.setLimits(s, s.kept().Limits, r.Limits), failpoint.At("attach/spec")); err != nil {
		return err
	}
	s.update(func() {
		s.record.Workspace, s.record.Mounts, s.record.Cwd, s.record.Limits = r.Workspace, r.Mounts, r.Cwd, r.Limits
		s.record.Attaching, s.record.AttachingTo, s.stale = false, "", true
	})
	h.keepRecord(s)
	return nil
}

// respecify has the spec of s say that b is mounted on target, or what is there without one.
func (h *host) respecify(s *sandbox, target string, b *plan.Mount) error {
	spec := plan.Attached(s.spec, target, b, h.paths.sandbox(s.id), s.kept().Limits.DiskBytes != 0)
	if err := writeRecord(h.paths.spec(s.id), spec); err != nil {
		return err
	}
	s.update(func() { s.spec = spec })
	return nil
}

// finishAttach undoes an attachment to s that was interrupted.
func (h *host) finishAttach(s *sandbox) error {
	r := s.kept()
	if !r.Attaching {
		return nil
	}
	b := plan.Attaching(r.AttachingTo, len(r.Mounts))
	live, points := mount.Live{Target: b.Target, Point: h.paths.point(s.id, b.Point)}, []string{h.paths.point(s.id, b.Point), h.paths.point(s.id, b.Lower)}
	undo := live.TakeOff
	if !b.Snapshot {
		r.Held, r.CowBase, live.Point, points = nil, mount.Base{}, "", append(points, h.paths.held(s.id))
		if r.Limits.DiskBytes != 0 {
			live.Point = filepath.Join(h.paths.disk(s.id), plan.DiskWorkspace)
		}
		undo = live.Restore
	}
	err := undo(s.process.file)
	for _, point := range points {
		err = errors.Join(err, mount.RemovePoint(point))
	}
	if err = errors.Join(err, owndir.RemoveTree(h.paths.point(s.id, b.Changes)), h.respecify(s, b.Target, nil)); err != nil {
		return err
	}
	s.update(func() {
		s.record.Attaching, s.record.AttachingTo, s.record.Held, s.record.CowBase = false, "", r.Held, r.CowBase
	})
	h.keepRecord(s)
	return nil
}
