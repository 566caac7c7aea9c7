package runtime

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime/plan"
)

// checkDisk refuses a disk that this host cannot have, or has no room for. The room is that
// of now: disks take what is written to them.
func (h *host) checkDisk(bytes int64) error {
	if err := disk.Probe(); err != nil {
		return err
	}
	room, err := disk.Room(h.paths.root, h.opts.DiskReserve)
	if err != nil || bytes <= room {
		return err
	}
	return sbxerr.WithRemedy(sbxerr.Disk, "runtime.disk",
		fmt.Errorf("a disk of %s is larger than the %s that are free below %q without sandboxes.disk_reserve", units.FormatSize(bytes), units.FormatSize(room), h.paths.root),
		"ask for a smaller disk (--disk), or remove images that nothing uses")
}

// createDisk attaches the disk of s, if it has one, with the directory that is its workspace.
func (h *host) createDisk(_ context.Context, s *sandbox) error {
	size := s.plan.Limits.Disk()
	if size.Bytes == 0 {
		return nil
	}
	for _, dir := range []string{h.paths.diskDir(s.id), h.paths.disk(s.id)} {
		if err := makeDir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := h.disks.Attach(h.paths.diskImage(s.id), h.paths.disk(s.id), size); err != nil {
		return err
	}
	workspace := filepath.Join(h.paths.disk(s.id), plan.DiskWorkspace)
	if err := makeDir(workspace, 0o755); err != nil {
		return err
	}
	return sbxerr.Wrap(sbxerr.Disk, "runtime.disk", owndir.Give(workspace, 0o755, int(s.block.Base+s.plan.User.UID), int(s.block.Base+s.plan.User.GID)))
}

func (h *host) removeDisk(_ context.Context, id string) error {
	if err := disk.Detach(h.paths.diskImage(id), h.paths.disk(id)); err != nil {
		return err
	}
	return removeFiles(h.paths.diskDir(id))
}
