package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// tree is a detached mount: no path leads to it until it is attached.
type tree struct{ fd int }

// Close drops the tree. An attached one stays where it is.
func (t tree) Close() error { return unix.Close(t.fd) }

// cloneTree clones the mount that dir lies on, from dir downwards and without
// mounts below it (open_tree(2) without AT_RECURSIVE).
func cloneTree(dir *os.File) (tree, error) {
	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return tree{}, fmt.Errorf("clone the mount of %q: %w", dir.Name(), err)
	}
	return tree{fd: fd}, nil
}

// restrict makes t private, nosuid and nodev, read-only if asked, and maps its
// ids where ns is given. The kernel does all of it or nothing.
func (t tree) restrict(readOnly bool, ns *UserNS) error {
	attr := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if ns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(ns.file.Fd())
	}
	err := unix.MountSetattr(t.fd, "", unix.AT_EMPTY_PATH, &attr)
	if ns != nil && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		return sbxerr.Wrap(sbxerr.IDMap, "mount.restrict", fmt.Errorf("map ids of a mount: %w", err))
	}
	if err != nil {
		return fmt.Errorf("restrict a mount: %w", err)
	}
	return nil
}

// attach puts t at target, an existing directory of the daemon's own.
func (t tree) attach(target string) error {
	if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach a mount at %q: %w", target, err)
	}
	return nil
}

// bind attaches a restricted clone of dir at target.
func bind(dir *os.File, target string, readOnly bool, ns *UserNS) error {
	t, err := cloneTree(dir)
	if err != nil {
		return err
	}
	err = t.restrict(readOnly, ns)
	if err == nil {
		err = t.attach(target)
	}
	return errors.Join(err, t.Close())
}

// Detach takes every mount off target, newest first. A target that is absent
// or no mount is success. Mounts that are in use vanish from the tree now and
// end with their last user (umount2(2), MNT_DETACH).
func Detach(target string) error {
	for {
		err := owndir.Unmount(target)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil
		default:
			return sbxerr.Wrap(sbxerr.Mount, "mount.detach", fmt.Errorf("unmount %q: %w", target, err))
		}
	}
}
