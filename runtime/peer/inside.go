package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Workspace is the workspace of a sandbox that may give directories of it to its children.
type Workspace struct {
	Held     string // where the daemon has it mounted, with the ids on disk
	Path     string // where it is mounted inside
	ReadOnly bool
	// The ids on disk of the sandbox there. Its children have the same.
	UID, GID uint32
	Groups   []uint32
}

// errParentLeft is a parent whose workspace is mounted no more.
var errParentLeft = errors.New("its workspace is gone")

// nameInside refuses dir, a clean path inside of the calling sandbox, by its name alone.
func (g Grant) nameInside(dir string) error {
	w := g.parent.Workspace
	switch {
	case w == nil:
		return g.refusal(errors.New("it has no workspace of which a child could get a directory: it has none, one that is copy-on-write, or one with other mounts in it"))
	case !within(dir, w.Path):
		return g.refusal(fmt.Errorf("%q lies outside of its workspace %q: a child gets a directory of that, and none of the host", sbxerr.Clip(dir), w.Path))
	}
	return g.refusal()
}

// openInside opens dir, a path inside of the calling sandbox, beneath its workspace. The
// sandbox may move, replace and remove what is there at any moment.
func (g Grant) openInside(ctx context.Context, dir string, write bool) (*Directory, error) {
	const op = "peer.workspace"
	w := g.parent.Workspace
	if write && w.ReadOnly {
		return nil, sbxerr.WithRemedy(sbxerr.Peer, op, fmt.Errorf("%s: its workspace is read-only", g.caller), "ask for it read-only: --workspace "+dir+":ro")
	}
	beneath, err := filepath.Rel(w.Path, dir)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	o, err := g.opening(ctx, func() opened { return w.open(beneath, dir, write) })
	if err != nil {
		return nil, sbxerr.Wrap(workspaceCode(err), op, w.explain(dir, write, err))
	}
	if err := ownsToWrite(User(w.UID, w.GID, w.Groups, 1), o.stat, write); err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.Peer, op, errors.Join(fmt.Errorf("directory %q belongs to somebody else, and a child could not write there", sbxerr.Clip(dir)), o.file.Close()),
			"ask for it read-only: --workspace "+dir+":ro")
	}
	return &Directory{File: o.file, UID: w.UID, GID: w.GID, Groups: w.Groups}, nil
}

// open opens the path beneath w with the rights over files that the sandbox has there: no
// directory on the way is one that it may not enter. It follows no link and no mount.
func (w *Workspace) open(beneath, name string, write bool) opened {
	root, err := w.root()
	if err != nil {
		return opened{err: err}
	}
	defer root.Close()
	var o opened
	onThrowawayThread(func() {
		if err := become(User(w.UID, w.GID, w.Groups, 1)); err != nil {
			o = opened{err: err}
			return
		}
		o = openAt(int(root.Fd()), beneath, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV, access{write: write})
	})
	return o
}

// root opens what is mounted at Held. Without a mount, the directory there is one of the
// daemon's own.
func (w *Workspace) root() (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, w.Held, &how)
	if errors.Is(err, unix.ENOENT) {
		return nil, errParentLeft
	}
	if err != nil {
		return nil, err
	}
	root := os.NewFile(uintptr(fd), w.Held)
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MODE, &st)
	if err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = errParentLeft
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

func (w *Workspace) explain(dir string, write bool, err error) error {
	verb := "read"
	if write {
		verb = "write"
	}
	dir = sbxerr.Clip(dir)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("the sandbox may not %s directory %q of its workspace: %w", verb, dir, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("directory %q of the workspace does not exist: %w", dir, err)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%q of the workspace is not a directory: %w", dir, err)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%q of the workspace has a symbolic link on its path; give the real path: %w", dir, err)
	}
	return fmt.Errorf("open directory %q of the workspace: %w", dir, err)
}
