package runtime

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/files"
)

// holds says what the files of s can have together: its image, what it can write into
// its memory, and what there is on the file system of its workspace. What cannot be
// found out counts as nothing.
func (m *Manager) holds(s *sandbox) files.Holds {
	return func(ctx context.Context) int64 {
		r := s.kept()
		total := r.Limits.MemoryBytes
		if image, err := m.images.Unpacked(ctx, r.ChainID); err == nil {
			total += image
		}
		var fs unix.Statfs_t
		if r.Workspace != nil && unix.Statfs(m.paths.workspace(s.id), &fs) == nil {
			total += int64(fs.Blocks-fs.Bfree) * fs.Bsize
		}
		return total
	}
}
