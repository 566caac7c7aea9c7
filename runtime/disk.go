package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/snapshots"
)

// CheckRoom refuses a disk that this host cannot have, or has no room for. The room is that
// of now: disks take what is written to them.
func (h *host) CheckRoom(bytes int64) error {
	if err := disk.Probe(); err != nil {
		return err
	}
	return h.roomFor("a disk", bytes)
}

// roomFor refuses what takes more bytes than the host's disk has to give.
func (h *host) roomFor(what string, bytes int64) error {
	room, err := disk.Room(h.paths.root, h.opts.DiskReserve)
	if err != nil || bytes <= room {
		return err
	}
	return sbxerr.WithRemedy(sbxerr.Disk, "runtime.disk",
		fmt.Errorf("%s of %s is larger than the %s that are free below %q without sandboxes.disk_reserve", what, units.FormatSize(bytes), units.FormatSize(room-room%(1<<20)), h.paths.root),
		"ask for a smaller size, or remove images and snapshots that nothing uses")
}

// StartGuardingDisks has all disks of sandboxes and volumes be full while the host's has only its reserve,
// until ctx ends.
func (h *host) StartGuardingDisks(ctx context.Context) {
	points := func() ([]string, error) {
		all := h.volumes.Points()
		made, err := os.ReadDir(h.paths.disks())
		for _, e := range made {
			all = append(all, h.paths.disk(e.Name()))
		}
		return all, err
	}
	go disk.Guard{Dir: h.paths.root, Reserve: h.opts.DiskReserve, Points: points, Log: h.log}.Watch(ctx)
}

// createDisk attaches the disk of s, if it has one, with the directory that is its workspace.
func (h *host) createDisk(ctx context.Context, s *sandbox) error {
	size := s.plan.Limits.Disk()
	if size.Bytes == 0 {
		return nil
	}
	for _, dir := range []string{h.paths.diskDir(s.id), h.paths.disk(s.id)} {
		if err := makeDir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := h.attachDisk(ctx, s, size); err != nil {
		return err
	}
	workspace := filepath.Join(h.paths.disk(s.id), plan.DiskWorkspace)
	if s.plan.From != nil {
		// A cache is as the volume is now, without what the sandbox of the snapshot wrote.
		if err := disk.Clear(h.paths.disk(s.id), plan.IsCacheChanges); err != nil {
			return err
		}
		if _, err := os.Lstat(workspace); err == nil {
			return nil
		}
	}
	if err := makeDir(workspace, 0o755); err != nil {
		return err
	}
	return sbxerr.Wrap(sbxerr.Disk, "runtime.disk", owndir.Give(workspace, 0o755, int(s.block.Base+s.plan.User.UID), int(s.block.Base+s.plan.User.GID)))
}

// attachDisk attaches an empty disk, or a copy of that of a snapshot, whose ids it shows as
// those of s.
func (h *host) attachDisk(ctx context.Context, s *sandbox, size disk.Size) error {
	from := s.plan.From
	if from == nil {
		return h.disks.Attach(h.paths.diskImage(s.id), h.paths.disk(s.id), size)
	}
	ns, err := h.idsFrom(from.IDBase, s)
	if err != nil {
		return err
	}
	return errors.Join(disk.AttachCopy(ctx, from.File, h.paths.diskImage(s.id), h.paths.disk(s.id), ns), ns.Close())
}

// idsFrom shows the ids of a block that begins with base as those of s.
func (h *host) idsFrom(base uint32, s *sandbox) (*mount.UserNS, error) {
	ids := []mount.IDMap{
		{Disk: 0, Host: 0, Size: 1}, // overlayfs's own
		{Disk: base, Host: s.block.Base, Size: idblock.Size},
	}
	return h.owners.Get(ids, ids)
}

func (h *host) removeDisk(ctx context.Context, id string) error {
	if err := errors.Join(h.workspaces.Settle(id, h.paths.applied(id)), h.keepDisk(ctx, id)); err != nil {
		return err // what is to be kept stays on the disk, for the next attempt
	}
	if err := errors.Join(snapshots.Drop(h.paths.diskImage(id), h.paths.disk(id), h.paths.rootfs(id)), disk.Detach(h.paths.diskImage(id), h.paths.disk(id))); err != nil {
		return err
	}
	return removeFiles(h.paths.diskDir(id))
}
