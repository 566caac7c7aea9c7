package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Merge is what a sandbox that has ended wrote to a copy-on-write volume.
type Merge struct {
	Journal string // its name
	Upper   string // directory of the layer
	Volume  *os.File
	Owner   peer.Caller // of the volume
	Since   int64       // when the layer began, in nanoseconds since the epoch
}

// Merge writes the changes into the volume, with the rights of its owner, and returns how many
// there were. Where another sandbox changed the same meanwhile, the last one counts.
func (s *Service) Merge(ctx context.Context, m Merge) (merged int, err error) {
	files := s.files(m.Journal, filepath.Join(s.dir, "none", m.Journal)) // which is not there: nobody asks what was merged
	for _, name := range []string{m.Journal, m.Volume.Name()} {
		release, err := s.locks.acquire(ctx, name)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	if err := s.finish(m.Journal, files.Applied); err != nil {
		return 0, err
	}
	layers, err := m.layers()
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Disk, "workspaces.merge", err)
	}
	defer func() { err = errors.Join(err, layers.Close()) }()
	p, err := apply.Look(ctx, layers, apply.Request{Side: apply.Theirs, Since: m.Since})
	if err != nil || len(p.Changes) == 0 {
		return 0, err
	}
	staged, err := p.Stage(ctx, layers.Upper, apply.Host{Dir: m.Volume, As: m.Owner}, files)
	if err != nil {
		return 0, err
	}
	done, err := staged.Commit()
	if left := append(p.Left, done.Failed...); len(left) > 0 {
		s.log.Warn("leave out what cannot be merged into a volume", "volume", m.Volume.Name(), "changes", len(left), "first", left[0].Path, "reason", left[0].Reason)
	}
	return len(done.Changes), err
}

func (m Merge) layers() (l changes.Layers, err error) {
	if l.Upper, err = openAt(m.Upper); err != nil {
		return l, err
	}
	if l.Lower, err = mount.CloneDir(m.Volume); err != nil {
		return l, errors.Join(err, l.Upper.Close())
	}
	return l, nil
}
