package runtime

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/files"
	"github.com/caisson-run/caisson/runtime/plan"
)

// holds says what the files of s can have together: its image, what it can write into
// its memory, and what there is on the file systems of its binds, or
// of the host where it has no isolation. What cannot be
// found out counts as nothing.
func (h *host) holds(s *sandbox) files.Holds {
	return func(ctx context.Context) int64 {
		r := s.kept()
		total := r.Limits.MemoryBytes
		if image, err := h.store.Unpacked(ctx, r.ChainID); err == nil {
			total += image
		}
		for _, p := range r.HostMounts {
			var fs unix.Statfs_t
			if unix.Statfs(p.Point, &fs) == nil {
				total += int64(fs.Blocks-fs.Bfree) * fs.Bsize
			}
		}
		for _, point := range plan.BindPoints(r.Workspace, r.Mounts) {
			var fs unix.Statfs_t
			if unix.Statfs(h.paths.point(s.id, point), &fs) == nil {
				total += int64(fs.Blocks-fs.Bfree) * fs.Bsize
			}
		}
		return total
	}
}
