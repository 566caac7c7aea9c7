package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

const opSave = "snapshots.save"

// Source is a sandbox of which a snapshot is made. Its processes stand still.
type Source struct {
	Snapshot  plan.Snapshot // but for what is of the files
	Workspace *plan.WorkspaceRequest
	Isolated  bool
	Image     string // file of its disk
	Disk      string // where that is mounted
	Root      string // where its root is attached on the host
	Spec      *specs.Spec
	Base      uint32 // first id of its block
}

// saveFiles writes to a new file what is kept: the disk, or the directory at.
func (s *Service) saveFiles(ctx context.Context, from Source, at, file string) (plan.Snapshot, error) {
	if at != "" {
		return s.saveTree(ctx, from, at, file)
	}
	p := from.Snapshot
	if p.Size.Bytes == 0 {
		return p, sbxerr.New(sbxerr.SnapshotDisk, opSave, "sandbox %q has no disk", p.SandboxName)
	}
	if err := from.Workspace.CheckSnapshot(opSave, p.SandboxName); err != nil {
		return p, err
	}
	use, err := disk.UseOf(from.Disk)
	if err == nil {
		err = s.fleet.CheckRoom(use.UsedBytes)
	}
	if err != nil {
		return p, err
	}
	p.UsedBytes = use.UsedBytes
	return p, disk.Save(ctx, from.Image, from.Disk, file)
}

// CheckPath refuses what names no directory inside of a sandbox.
func CheckPath(at string) error {
	if !path.IsAbs(at) || path.Clean(at) != at || strings.ContainsRune(at, 0) || at == "/" || len(at) >= unix.PathMax {
		return sbxerr.New(sbxerr.SnapshotPath, opSave, "%q is not the clean absolute path of a directory below /", sbxerr.Clip(at))
	}
	return nil
}

// saveTree makes a disk with a directory of a sandbox: that of its root, or of its own /workspace.
func (s *Service) saveTree(ctx context.Context, from Source, at, file string) (plan.Snapshot, error) {
	p := from.Snapshot
	tree, err := from.open(at)
	if err != nil {
		return p, err
	}
	defer tree.Close() // it was only read
	size, err := sizeOf(ctx, tree)
	if err == nil {
		err = errors.Join(size.Check(), s.fleet.CheckRoom(size.Bytes))
	}
	if err != nil {
		return p, err
	}
	use, err := s.disks.Fill(file, size, func(dir string) error { return copyTree(ctx, tree, from.Base, dir) })
	p.Path, p.WritableRoot, p.Size, p.UsedBytes, p.IDBase = at, false, size, use.UsedBytes, importedBase
	return p, err
}

// open opens a directory, which is on one of the file systems that are the sandbox's own.
func (f Source) open(at string) (*os.Root, error) {
	refuse := func(format string, args ...any) error {
		return sbxerr.New(sbxerr.SnapshotPath, opSave, "directory %q of sandbox %q "+format, append([]any{sbxerr.Clip(at), f.Snapshot.SandboxName}, args...)...)
	}
	if !f.Isolated {
		return nil, refuse("is one of the host")
	}
	root, name := f.Root, at[1:]
	for _, m := range f.Spec.Mounts {
		within := at == m.Destination || strings.HasPrefix(at, m.Destination+"/")
		switch {
		case within && m.Source == filepath.Join(f.Disk, plan.DiskWorkspace):
			root, name = m.Source, "."+at[len(m.Destination):]
		case within:
			return nil, refuse("lies in the mount on %q", m.Destination)
		case strings.HasPrefix(m.Destination, at+"/"):
			return nil, refuse("holds the mount on %q", m.Destination)
		}
	}
	dir, err := mount.OpenBelow(root, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, refuse("does not exist")
	case errors.Is(err, unix.ENOTDIR):
		return nil, refuse("is no directory")
	case errors.Is(err, unix.ELOOP):
		return nil, refuse("has a symbolic link in its path")
	case err != nil:
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSave, err)
	}
	defer dir.Close() // the root is opened anew
	tree, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	return tree, sbxerr.Wrap(sbxerr.StateDir, opSave, err)
}

// What a file takes of a disk at most beside its content, and an empty disk of its own.
const (
	blockBytes = 4096
	fileBytes  = 512 // its inode and its name
	emptyBytes = 16 << 20
)

// sizeOf is that of a disk with room for the files of a tree.
func sizeOf(ctx context.Context, tree *os.Root) (disk.Size, error) {
	files, bytes := int64(1), int64(0)
	seen := map[uint64]bool{} // files with several names
	err := layertar.Walk(tree, ".", func(_ string, e fs.DirEntry) error {
		info, err := e.Info()
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		files++
		if !seen[st.Ino] {
			bytes += (st.Size + blockBytes - 1) / blockBytes * blockBytes
		}
		if st.Nlink > 1 && !e.IsDir() {
			seen[st.Ino] = true
		}
		return nil
	})
	size := disk.Size{Bytes: emptyBytes + bytes + bytes/64 + files*fileBytes, Inodes: files + 64}
	size.Bytes = (max(size.Bytes, size.Inodes*blockBytes) + 1<<20 - 1) >> 20 << 20
	size.Inodes = max(size.Inodes, disk.MinInodes)
	return size, sbxerr.Wrap(sbxerr.StateDir, opSave, err)
}

// copyTree copies a tree to an empty disk.
func copyTree(ctx context.Context, tree *os.Root, base uint32, dir string) error {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(layertar.Parts([]layertar.Part{{Root: tree, At: plan.DiskWorkspace, All: true}}, base, w))
	}()
	defer context.AfterFunc(ctx, func() { w.CloseWithError(sbxerr.Wrap(sbxerr.Canceled, opSave, context.Cause(ctx))) })()
	err := unpack(dir, false, true, r)
	r.CloseWithError(errors.New("the files were not read to their end"))
	return err
}

// Tree returns the snapshot of a directory that the holder of g mounts.
func (s *Service) Tree(g peer.Grant, ref string) (*plan.Origin, error) {
	o, err := s.origin(g, ref)
	if err == nil && o.Path == "" {
		err = sbxerr.WithRemedy(sbxerr.SnapshotMismatch, opMount, fmt.Errorf("snapshot %q has the disk of a sandbox, and no directory to mount", ref), "create a sandbox from it: caisson create --from "+ref)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

const opMount = "snapshots.mount"

// Mount mounts the directory of a snapshot as c says, which shows its ids as ids maps them. Its disk
// goes with the mount, and not with the snapshot.
func Mount(from plan.Origin, c mount.Cow, ids *mount.UserNS) error {
	for _, dir := range []string{filepath.Join(c.Dir, c.Lower), c.Target} {
		if err := owndir.Mkdir(dir, 0o700); err != nil {
			return sbxerr.Wrap(sbxerr.StateDir, opMount, err)
		}
	}
	if err := disk.AttachSaved(from.File, filepath.Join(c.Dir, c.Lower), ids); err != nil {
		return err
	}
	c.Lower = filepath.Join(c.Lower, plan.DiskWorkspace)
	return c.Attach()
}
