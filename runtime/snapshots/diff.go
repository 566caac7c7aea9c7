package snapshots

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/plan"
)

const opDiff = "snapshots.diff"

// workspaceName is that of the disk's directory in the root of a sandbox.
const workspaceName = "workspace"

// Diff returns what the snapshot to has other than the snapshot from, at or below the paths where
// there are some. Disks are mounted nowhere, so that nothing stays of a daemon that is killed.
func (s *Service) Diff(ctx context.Context, from, to string, paths []string) (list []changes.Change, more bool, err error) {
	defer s.fleet.Busy()()
	a, err := s.Inspect(ctx, from)
	if err != nil {
		return nil, false, err
	}
	b, err := s.Inspect(ctx, to)
	if err != nil {
		return nil, false, err
	}
	only, err := a.below(paths)
	if err == nil {
		err = a.checkDiff(b)
	}
	if err != nil || a.Key == b.Key {
		return nil, false, err
	}
	image, err := s.imageOf(ctx, a)
	if err != nil {
		return nil, false, err
	}
	if image != nil {
		defer image.Close() // it was only read
	}
	was, is := files{info: a, image: image}, files{info: b, image: image}
	defer was.close()
	defer is.close()
	if err := errors.Join(was.open(s.store), is.open(s.store), failpoint.At("snapshot/opened")); err != nil {
		return nil, false, err
	}
	list, more, err = changes.Between(ctx, pairsOf(was, is), changes.Options{Only: only})
	return list, more, sbxerr.Wrap(sbxerr.Disk, opDiff, err)
}

// maxPaths bounds the paths of a call.
const maxPaths = 1000

// below makes paths names below what the snapshot is of. Absolute ones are those inside.
func (i Info) below(paths []string) ([]string, error) {
	if len(paths) > maxPaths {
		return nil, sbxerr.New(sbxerr.Config, opDiff, "%d paths are more than %d", len(paths), maxPaths)
	}
	var names []string
	root := "/" + i.Path // of a directory, absolute already
	for _, p := range paths {
		name := path.Clean(p)
		if path.IsAbs(name) {
			rel, err := filepath.Rel(path.Clean(root), name)
			if err != nil {
				return nil, sbxerr.Wrap(sbxerr.Internal, opDiff, err)
			}
			name = rel
		}
		if p == "" || !filepath.IsLocal(name) {
			return nil, sbxerr.New(sbxerr.Config, opDiff, "path %q: give one below %s, such as lib/site.py", sbxerr.Clip(p), path.Clean(root))
		}
		names = append(names, name)
	}
	if slices.Contains(names, ".") {
		return nil, nil
	}
	return names, nil
}

// checkDiff refuses snapshots that are not of one thing.
func (i Info) checkDiff(other Info) error {
	mismatch := func(format string, args ...any) error {
		return sbxerr.WithRemedy(sbxerr.SnapshotMismatch, opDiff, fmt.Errorf(format, args...), "compare two snapshots of the same directory, or two of whole sandboxes: caisson snapshot ls")
	}
	switch {
	case i.Path != other.Path && i.Path != "" && other.Path != "":
		return mismatch("snapshot %q has the directory %q, and snapshot %q has %q", i.Name, sbxerr.Clip(i.Path), other.Name, sbxerr.Clip(other.Path))
	case i.Path != other.Path && i.Path != "":
		return mismatch("snapshot %q has the directory %q alone, and snapshot %q the disk of a sandbox", i.Name, sbxerr.Clip(i.Path), other.Name)
	case i.Path != other.Path:
		return mismatch("snapshot %q has the disk of a sandbox, and snapshot %q the directory %q alone", i.Name, other.Name, sbxerr.Clip(other.Path))
	case i.WritableRoot != other.WritableRoot:
		return mismatch("snapshot %q is of a sandbox with the root file system %s, and snapshot %q of one with %s", i.Name, plan.RootfsOf(i.WritableRoot), other.Name, plan.RootfsOf(other.WritableRoot))
	case i.WritableRoot && i.ImageDigest != other.ImageDigest:
		return sbxerr.WithRemedy(sbxerr.SnapshotImage, opDiff, fmt.Errorf("snapshot %q is of image %s, and snapshot %q of %s", i.Name, i.ImageDigest, other.Name, other.ImageDigest),
			"compare two snapshots of sandboxes with one image: caisson snapshot ls")
	}
	return nil
}

// imageOf opens the image that a snapshot of a whole root lies over; nil where it has no root.
func (s *Service) imageOf(ctx context.Context, i Info) (*os.File, error) {
	if !i.WritableRoot {
		return nil, nil
	}
	root, err := s.images.Open(ctx, i.ImageDigest)
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	return dir, sbxerr.Wrap(sbxerr.StateDir, opDiff, errors.Join(err, root.Close()))
}

// files are those of a snapshot.
type files struct {
	info            Info
	image           *os.File // that is below the root; nil: there is no root
	root, workspace *os.File
}

func (f *files) open(store *Store) error {
	saved, err := disk.OpenSaved(store.File(f.info.Key))
	if err != nil {
		return err
	}
	defer saved.Close() // what is open keeps it
	at := fmt.Sprintf("/proc/self/fd/%d", saved.Fd())
	if f.workspace, err = os.Open(filepath.Join(at, plan.DiskWorkspace)); err == nil && f.image != nil {
		f.root, err = os.Open(mount.UpperDir(at))
	}
	return sbxerr.Wrap(sbxerr.Disk, opDiff, err)
}

func (f *files) close() {
	for _, dir := range []*os.File{f.root, f.workspace} {
		if dir != nil {
			dir.Close() // it was only read
		}
	}
}

// tick is longer than the kernel's clock of files stands still (CONFIG_HZ).
const tick = 20 * time.Millisecond

// common is the time until which two snapshots are of one disk of one sandbox; zero: they are not.
func (i Info) common(other Info) time.Time {
	if i.Path+other.Path != "" || i.SandboxID == "" || i.SandboxID != other.SandboxID || !i.DiskSince.Equal(other.DiskSince) {
		return time.Time{}
	}
	earlier := i.CreatedAt
	if other.CreatedAt.Before(earlier) {
		earlier = other.CreatedAt
	}
	return earlier.Add(-tick)
}

// pairsOf are the trees of two snapshots: a directory, or what a sandbox has at / and /workspace.
func pairsOf(a, b files) []changes.Pair {
	common := a.info.common(b.info)
	workspace := changes.Pair{Old: a.tree(a.workspace), New: b.tree(b.workspace), Common: common}
	if a.info.Path != "" {
		return []changes.Pair{workspace}
	}
	workspace.At = workspaceName
	if a.image == nil {
		return []changes.Pair{workspace}
	}
	root := changes.Pair{Old: a.tree(a.root), New: b.tree(b.root), Covered: workspaceName, Common: common}
	root.Old.Under, root.New.Under = a.image, b.image
	return []changes.Pair{root, workspace}
}

func (f *files) tree(top *os.File) changes.Tree {
	return changes.Tree{Top: top, Base: f.info.IDBase}
}
