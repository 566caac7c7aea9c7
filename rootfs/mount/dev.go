package mount

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// devices are the nodes that a sandbox has: major and minor number by name.
var devices = map[string][2]uint32{
	"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0},
}

// devLinks are the links that programs expect beside them.
var devLinks = map[string]string{
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
}

// AttachDev mounts a file system with the device nodes of one sandbox at dir, which
// exists. It also holds the directories on which pts, shm and mqueue are mounted.
//
// The host's own nodes would carry locks (flock(2)) and watches (inotify(7)) between
// sandboxes, and between them and the host. Nodes are made here because nobody in a
// user namespace can make one that works.
func AttachDev(dir string) error {
	t, err := newDev()
	if err == nil {
		err = errors.Join(t.attach(dir), t.Close())
	}
	if err != nil {
		err = fmt.Errorf("make device nodes: %w", err)
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.dev", err)
}

func newDev() (tree, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return tree{}, err
	}
	t, err := mountDev(fs)
	if err = errors.Join(err, unix.Close(fs)); err != nil {
		return tree{}, err
	}
	if err := fillDev(t.fd); err != nil {
		return tree{}, errors.Join(err, t.Close())
	}
	return t, nil
}

func mountDev(fs int) (tree, error) {
	for key, value := range map[string]string{"source": "caisson", "size": "64k", "nr_inodes": "64", "mode": "0755"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return tree{}, fmt.Errorf("set %s: %w", key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return tree{}, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	return tree{fd: fd}, err
}

func fillDev(dir int) error {
	for name, number := range devices {
		if err := unix.Mknodat(dir, name, unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := unix.Fchmodat(dir, name, 0o666, 0); err != nil { // whatever the umask is
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, to := range devLinks {
		if err := unix.Symlinkat(to, dir, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range []string{"pts", "shm", "mqueue"} {
		if err := unix.Mkdirat(dir, name, 0o755); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
