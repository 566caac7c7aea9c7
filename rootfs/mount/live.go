package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// On is the kind of target that a [Live] mount needs.
type On int

const (
	OnEmpty On = iota // an empty directory on which nothing is mounted
	// OnOwn is an empty directory that is mounted there. The mount takes its place, as nothing
	// may be below one.
	OnOwn
	// OnAny is a directory on whatever mount, among files that others may change; they are
	// covered. For a mount of a file it is a file.
	OnAny
)

// Live is a mount that a live sandbox gets.
type Live struct {
	Point    string // where it is attached on the host; empty is a new tmpfs
	Target   string // absolute path to an existing directory inside
	On       On
	ReadOnly bool
	// Of a tmpfs:
	Bytes, Inodes int64
	Owner         uint32 // host id of the sandbox's root
}

// AttachInto mounts n in the mount namespace of a live sandbox. sandbox is a pidfd of a process
// of the sandbox (Linux 5.8) or its /proc/PID/ns/mnt. The caller needs CAP_SYS_ADMIN in the user
// namespaces that own the sandbox's mount namespace and its own, and CAP_SYS_CHROOT (setns(2)):
// root of the initial user namespace has them all.
//
// The mount is the one that a bind by the OCI runtime would give: nosuid, nodev, private,
// otherwise as it is on the host. Nothing in the sandbox has a say in where it lands: no symbolic
// link is followed on the way, it goes onto the directory that was opened, and it is looked at
// afterwards. On an error the sandbox is as before.
func (n Live) AttachInto(sandbox *os.File) error {
	const op = "mount.live"
	name, local := strings.CutPrefix(n.Target, "/")
	if !local || !filepath.IsLocal(name) || filepath.Clean(name) != name || name == "." {
		return sbxerr.New(sbxerr.Internal, op, "mount on %q: it is not a clean absolute path below the root", n.Target)
	}
	t, err := n.tree()
	if err == nil {
		err = errors.Join(onThrowawayThread(func() error {
			if err := enterMounts(sandbox); err != nil {
				return err
			}
			return t.attachOn(name, n.ReadOnly, n.On)
		}), t.Close())
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP):
		return sbxerr.WithRemedy(sbxerr.Workspace, op, fmt.Errorf("mount on %q: there is no such directory, or no file for a file: %w", sbxerr.Clip(n.Target), err),
			"make it first; a symbolic link cannot be a mount's target")
	}
	if err != nil {
		return sbxerr.Wrap(mountCode(err), op, fmt.Errorf("mount on %q: %w", sbxerr.Clip(n.Target), err))
	}
	return nil
}

// TakeOff takes n off its target in a live sandbox, where it is mounted.
func (n Live) TakeOff(sandbox *os.File) error {
	var own unix.Stat_t
	if err := unix.Lstat(n.Point, &own); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return sbxerr.Wrap(sbxerr.Mount, "mount.live", err)
	}
	err := onThrowawayThread(func() error {
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		top, err := openAny(strings.TrimPrefix(n.Target, "/"))
		if err != nil {
			return nil // it has no such directory: nothing is mounted there
		}
		var st unix.Stat_t
		if err = unix.Fstat(top, &st); err == nil && st.Dev == own.Dev {
			err = errors.Join(tree{top}.takeOff(), backToRoot())
		}
		return errors.Join(err, unix.Close(top))
	})
	return sbxerr.Wrap(mountCode(err), "mount.live", err)
}

// Restore takes off all that is mounted at the target in a live sandbox, and mounts n there unless
// it has no point.
func (n Live) Restore(sandbox *os.File) error {
	name := strings.TrimPrefix(n.Target, "/")
	err := onThrowawayThread(func() error {
		t, err := tree{}, error(nil)
		if n.Point != "" {
			if t, err = n.tree(); err != nil {
				return err
			}
			defer t.Close()
		}
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		if err := takeAllOff(name); err != nil || n.Point == "" {
			return err
		}
		return t.attachAt(name, n.ReadOnly, openAny)
	})
	return sbxerr.Wrap(mountCode(err), "mount.live", err)
}

// takeAllOff detaches every mount at name, which is a directory of the root mount.
func takeAllOff(name string) error {
	root, err := mountID(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	for {
		top, err := openAny(name)
		if err != nil {
			return err
		}
		id, err := mountID(top, "")
		if err == nil && id != root {
			err = errors.Join(tree{top}.takeOff(), backToRoot())
		}
		if err = errors.Join(err, unix.Close(top)); err != nil || id == root {
			return err
		}
	}
}

// tree is the detached mount. The one at Point has its id mapping.
func (n Live) tree() (tree, error) {
	if n.Point == "" {
		return n.newTmpfs()
	}
	dir, err := os.OpenFile(n.Point, unix.O_PATH|unix.O_NOFOLLOW, 0)
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

func (n Live) newTmpfs() (_ tree, err error) {
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

// openAny opens name below the root, on whatever mount.
func openAny(name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	if err != nil {
		return -1, fmt.Errorf("open the mount point: %w", err)
	}
	return fd, nil
}
