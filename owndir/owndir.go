// Package owndir changes names, owners and modes in the daemon's own directories,
// and removes what it made there.
//
// Root acts here, so a link or a mount in the wrong place would lead it to other
// people's files. Each function opens the parent directory without following any
// symbolic link, and acts on names in that descriptor. Nothing follows a link, and
// nothing is removed behind a mount. Paths are absolute.
package owndir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remove unlinks files and removes empty directories. An absent one is success.
func Remove(paths ...string) error { return remove(paths, removeAt) }

// Unlink is Remove for what is never a directory.
func Unlink(path string) error {
	return remove([]string{path}, func(parent int, name string) error { return unix.Unlinkat(parent, name, 0) })
}

func remove(paths []string, act func(parent int, name string) error) error {
	var errs []error
	for _, path := range paths {
		err := inParent(path, act)
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Rename gives the file at path another name in the same directory, in place of what
// has that name.
func Rename(path, name string) error {
	return inParent(path, func(parent int, old string) error { return unix.Renameat(parent, old, parent, name) })
}

// Move moves the file at path to the path to, where there is none yet.
func Move(path, to string) error {
	return inParent(path, func(parent int, name string) error {
		return inParent(to, func(newParent int, newName string) error {
			return unix.Renameat2(parent, name, newParent, newName, unix.RENAME_NOREPLACE)
		})
	})
}

// Link gives the file at path another path as well, where there is none yet.
func Link(path, to string) error {
	return inParent(path, func(parent int, name string) error {
		return inParent(to, func(newParent int, newName string) error { return unix.Linkat(parent, name, newParent, newName, 0) })
	})
}

// Mkdir makes one directory with exactly mode, whatever the umask.
func Mkdir(path string, mode fs.FileMode) error {
	err := inParent(path, func(parent int, name string) error { return unix.Mkdirat(parent, name, uint32(mode.Perm())) })
	if err != nil {
		return err
	}
	return Give(path, mode, -1, -1)
}

// Give sets the mode and the owner of what is at path, of whatever kind. An id of -1
// stays as it is.
func Give(path string, mode fs.FileMode, uid, gid int) error {
	return inParent(path, func(parent int, name string) error {
		fd, err := openAt(parent, name, unix.O_PATH)
		if err != nil {
			return err
		}
		err = unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH)
		if err == nil { // fchmod(2) takes no O_PATH, and what is here may be a socket
			err = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
		}
		return errors.Join(err, unix.Close(fd))
	})
}

// GiveDir sets the mode of a directory of the daemon's own, which may be the root of a
// mount: an operator may keep a file system for it.
func GiveDir(path string, mode fs.FileMode) error {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := openat2(unix.AT_FDCWD, path, &how)
	if err == nil {
		err = errors.Join(unix.Fchmod(fd, uint32(mode.Perm())), unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	return nil
}

// inParent calls act with the parent directory of path and the name in it.
func inParent(path string, act func(parent int, name string) error) error {
	parent, err := openParent(path)
	if err == nil {
		err = errors.Join(act(parent, filepath.Base(path)), unix.Close(parent))
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	return nil
}

func openParent(path string) (int, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return -1, errors.New("it is not a clean absolute path")
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	return openat2(unix.AT_FDCWD, filepath.Dir(path), &how)
}

// openAt opens name, which is neither a link nor the root of a mount.
func openAt(parent int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	return openat2(parent, name, &how)
}

// openat2 tries again where the kernel could not rule out a race (openat2(2)).
func openat2(dir int, path string, how *unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(dir, path, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func removeAt(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if errors.Is(err, unix.EISDIR) {
		return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	}
	return err
}

// Unmount takes the topmost mount off path. Mounts that are in use end with their
// last user (umount2(2), MNT_DETACH).
func Unmount(path string) error {
	return inParent(path, func(parent int, name string) error {
		return unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", parent, name), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	})
}
