package runtime

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/clones"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
)

// createMounts attaches the directories and files of the host that s has, the workspace and the
// others, at points of its own.
func (h *host) createMounts(ctx context.Context, s *sandbox) error {
	return h.eachBind(ctx, s, s.plan)
}

// updateMounts gives a sandbox of the pool the mounts that it is taken for.
func (h *host) updateMounts(ctx context.Context, s *sandbox, c *change) (undo func() error, err error) {
	p := c.plan
	if p == nil {
		return nil, nil
	}
	err = h.eachBind(ctx, s, p)
	if err = errors.Join(err, failpoint.At("assign/attached")); err != nil {
		return nil, err
	}
	c.to.Held, c.to.CowBase = s.kept().Held, s.kept().CowBase
	return nil, h.attachLate(ctx, s, p, true)
}

// attachPoint attaches a bind on the host. The posture is checked against it.
func (h *host) attachPoint(s *sandbox, b plan.Mount, ws *mount.Workspace, ids *mount.UserNS) error {
	point := h.paths.point(s.id, b.Point)
	if ws.File {
		return errors.Join(makeFile(point), ws.Attach(point, b.ReadOnly, ids))
	}
	if err := makeDir(point, 0o700); err != nil {
		return err
	}
	if !b.Cow {
		return ws.Attach(point, b.ReadOnly, ids)
	}
	base, err := ws.AttachCow(h.cowOf(s, b), ids)
	if !b.Volume {
		s.update(func() { s.record.CowBase = base })
	}
	return err
}

// eachBind opens the directories of the host that p names, as its caller, and attaches each on the
// host with the mapping of its owner's ids to those of the sandbox's user.
func (h *host) eachBind(ctx context.Context, s *sandbox, p *plan.Sandbox) error {
	if len(plan.BindPoints(nil, p.MountRequests)) > 0 || p.Request.Nested != nil || p.Request.Workspace.OnDisk() {
		if err := makeDir(h.paths.mounts(s.id), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := clones.Check(ctx, p.Grant, p.Request.Workspace); err != nil {
		return err
	}
	for _, b := range p.Mounts {
		if b.Source == "" {
			continue
		}
		if b.File != nil || len(b.Layers) > 0 {
			if err := h.attachOfBuild(s, b); err != nil {
				return err
			}
			continue
		}
		attach := func() error { return h.withBind(ctx, s, p, b) }
		if b.Snapshot {
			attach = func() error { return h.attachSnapshot(s, b) }
		}
		if err := attach(); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) attachSnapshot(s *sandbox, b plan.Mount) error {
	ids, err := h.idsFrom(b.From.IDBase, s)
	if err != nil {
		return err
	}
	return errors.Join(snapshots.Mount(*b.From, h.cowOf(s, b), ids), ids.Close())
}

// cowOf says where a copy-on-write mount is put together.
func (h *host) cowOf(s *sandbox, b plan.Mount) mount.Cow {
	return mount.Cow{Dir: h.paths.sandbox(s.id), Lower: b.Lower, Changes: b.Changes, Target: h.paths.point(s.id, b.Point), Base: s.block.Base}
}

// attachOfBuild attaches a file of memory, or an image of which a build step has a part.
func (h *host) attachOfBuild(s *sandbox, b plan.Mount) error {
	point := h.paths.point(s.id, b.Point)
	if b.File != nil {
		file := *b.File
		file.UID, file.GID = s.block.Base+file.UID, s.block.Base+file.GID
		return errors.Join(makeDir(point, 0o711), file.Attach(point))
	}
	root := mount.Root{Layers: b.Layers, Private: point + "-private", Scratch: point + "-layers", Target: point, IDs: s.ids}
	for _, dir := range []string{root.Private, root.Scratch, root.Target} {
		if err := makeDir(dir, 0o711); err != nil {
			return err
		}
	}
	return root.Attach()
}

func (h *host) withBind(ctx context.Context, s *sandbox, p *plan.Sandbox, b plan.Mount) (err error) {
	ws, err := h.openBind(ctx, p, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	uids, gids, err := ws.Map(s.block.Base, p.User.UID, p.User.GID)
	if err != nil {
		return err
	}
	ids, err := h.owners.Get(uids, gids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ids.Close()) }()
	if ws.File {
		p.SetFile(b.Target)
	}
	return errors.Join(h.attachPoint(s, b, ws, ids), h.hold(s, p, b, ws))
}

// hold keeps the workspace of a sandbox that may make others, with the ids on disk: what has
// mapped ids cannot be mapped once more for a child. A workspace in which other mounts lie is
// not held: a child would see the files that they cover. Nor is a copy-on-write one: a child
// would write to the host.
func (h *host) hold(s *sandbox, p *plan.Sandbox, b plan.Mount, ws *mount.Workspace) error {
	if p.Request.Nested == nil || b.Point != plan.WorkspacePoint || b.Cow || slices.ContainsFunc(p.Mounts, b.Holds) {
		return nil
	}
	point := h.paths.held(s.id)
	if err := errors.Join(makeDir(point, 0o700), ws.Attach(point, b.ReadOnly, nil)); err != nil {
		return err
	}
	as := ws.Identity()
	s.update(func() { s.record.Held = &as })
	return nil
}

// openBind opens the directory of b as the caller of p, who must have the rights that the
// sandbox is to get.
func (h *host) openBind(ctx context.Context, p *plan.Sandbox, b plan.Mount) (*mount.Workspace, error) {
	if b.Volume {
		return h.volumes.Open(ctx, p.Grant, b.Source)
	}
	dir, err := openOnHost(ctx, p.Grant, b)
	if err != nil {
		return nil, err
	}
	as := mount.Identity{UID: dir.UID, GID: dir.GID, Groups: dir.Groups}
	if p.Grant.Parent() != "" { // it is named as inside of the calling sandbox
		return mount.Opened(dir.File, as)
	}
	return h.settings().Workspaces.Opened(dir.File, as)
}

// openOnHost opens the directory or file of b with the rights that g has.
func openOnHost(ctx context.Context, g peer.Grant, b plan.Mount) (*peer.Directory, error) {
	if b.TakesFile() {
		return g.CheckBind(ctx, b.Source, b.WritesHost())
	}
	return g.CheckWorkspace(ctx, b.Source, b.WritesHost())
}

// checkBinds refuses a sandbox of p where a directory cannot be opened now.
func (h *host) checkBinds(ctx context.Context, p *plan.Sandbox) error {
	if err := clones.Check(ctx, p.Grant, p.Request.Workspace); err != nil {
		return err
	}
	for _, b := range p.Mounts {
		if !b.OnHost() {
			continue
		}
		dir, err := openOnHost(ctx, p.Grant, b)
		if err != nil {
			return err
		}
		if err := dir.Close(); err != nil {
			return err
		}
	}
	return nil
}

// attachLate makes the mounts of p in a live sandbox: all, or those whose target lies in a bind. No
// command runs yet, but others may write to such a bind.
func (h *host) attachLate(ctx context.Context, s *sandbox, p *plan.Sandbox, all bool) error {
	for _, b := range p.Mounts {
		if !all && !b.Nested {
			continue
		}
		n := mount.Live{Target: b.Target, On: s.targetOf(b), ReadOnly: b.ReadOnly, Bytes: b.Size, Inodes: plan.TmpfsInodes, Owner: s.block.Base}
		if b.Point != "" {
			n.Point = h.paths.point(s.id, b.Point)
			switch {
			case b.File != nil:
				n.Point = mount.MemoryFileIn(n.Point)
			case len(b.Layers) > 0:
				n.Point = filepath.Join(n.Point, b.Source)
			}
		}
		sandbox := s.process.file
		if err := p.Grant.Bounded(ctx, b.Target, func() error { return n.AttachInto(sandbox) }); err != nil {
			return err
		}
	}
	return nil
}

// targetOf is what b is mounted on in s, which is live: the workspace on the disk makes room for
// another one.
func (s *sandbox) targetOf(b plan.Mount) mount.On {
	switch {
	case b.Nested:
		return mount.OnAny
	case b.Target == plan.WorkspacePath && plan.HasMount(s.spec, b.Target):
		return mount.OnOwn
	case b.Source == "":
		return mount.OnAny
	}
	return mount.OnEmpty
}

func (h *host) removeMounts(_ context.Context, id string) error {
	points := h.paths.mounts(id)
	return errors.Join(
		mount.RemovePoint(h.paths.workspace(id)),
		mount.RemoveScratch(points),
		owndir.Remove(points))
}
