package mount

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Nested is a mount whose target lies in a bind, among files that others may change.
type Nested struct {
	Point    string // of a bind: where it is attached on the host
	Target   string // absolute path to an existing directory inside
	ReadOnly bool
	// Of a tmpfs:
	Bytes, Inodes int64
	Owner         uint32 // host id of the sandbox's root
}

// AttachInto mounts n in the mount namespace of a live sandbox. For sandbox and the caller's
// rights see Workspace.AttachInto. No symbolic link is followed on the way to the target. A
// bind covers the files that the target holds.
func (n Nested) AttachInto(sandbox *os.File) error {
	const op = "mount.nested"
	t, err := n.tree()
	if err == nil {
		err = errors.Join(onThrowawayThread(func() error {
			return t.attachIn(sandbox, strings.TrimPrefix(n.Target, "/"), n.ReadOnly, openNested)
		}), t.Close())
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return sbxerr.WithRemedy(sbxerr.Workspace, op, fmt.Errorf("mount on %q: the bind that it lies in has no such directory: %w", sbxerr.Clip(n.Target), err),
			"make the directory first; a symbolic link or a file cannot be a mount's target")
	case err != nil:
		return sbxerr.Wrap(mountCode(err), op, fmt.Errorf("mount on %q: %w", sbxerr.Clip(n.Target), err))
	}
	return nil
}

// tree is the detached mount. The one at Point has its id mapping.
func (n Nested) tree() (tree, error) {
	if n.Point == "" {
		return n.newTmpfs()
	}
	dir, err := os.OpenFile(n.Point, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return tree{}, err
	}
	t, err := cloneTree(dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		return tree{}, err
	}
	if err := t.restrict(n.ReadOnly, nil); err != nil {
		return tree{}, errors.Join(err, t.Close())
	}
	return t, nil
}

func (n Nested) newTmpfs() (_ tree, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return tree{}, err
	}
	defer func() { err = errors.Join(err, unix.Close(fs)) }()
	owner := strconv.FormatUint(uint64(n.Owner), 10)
	for key, value := range map[string]string{
		"source": "tmpfs", "size": strconv.FormatInt(n.Bytes, 10), "nr_inodes": strconv.FormatInt(n.Inodes, 10), "mode": "1777", "uid": owner, "gid": owner,
	} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return tree{}, fmt.Errorf("set %s: %w", key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return tree{}, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	return tree{fd: fd}, err
}

// openNested opens the directory name below the root, on whatever mount.
func openNested(name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	if err != nil {
		return -1, fmt.Errorf("open the mount point: %w", err)
	}
	return fd, nil
}
