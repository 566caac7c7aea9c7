package mount

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// devices are the nodes that a sandbox has: major and minor number by name.
var devices = map[string][2]uint32{
	"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0},
}

// devLinks are the links that programs expect beside them.
var devLinks = map[string]string{
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
}

const (
	devName  = "dev"
	endsName = "ends"
)

// DevDir is where a file system of AttachOwn has the device nodes.
func DevDir(own string) string { return filepath.Join(own, devName) }

// EndsFile is the file there that PID 1 fills.
func EndsFile(own string) string { return filepath.Join(own, endsName) }

// AttachOwn mounts a file system of one sandbox's own at dir, which exists: with its
// device nodes, and the file that PID 1 fills for a later daemon. It holds size bytes.
//
// The host's nodes would carry locks (flock(2)) and watches (inotify(7)) between
// sandboxes, and between them and the host. Nodes are made here because nobody in a
// user namespace can make one that works. Beside them are the directories on which
// pts, shm and mqueue are mounted.
//
// PID 1 is hostile: that size is what bounds the file. What PID 1
// writes is charged to its cgroup.
func AttachOwn(dir string, size int64) error {
	t, err := newOwn(size)
	if err == nil {
		err = errors.Join(t.attach(dir), t.Close())
	}
	if err != nil {
		err = fmt.Errorf("make the sandbox's own files: %w", err)
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.own", err)
}

func newOwn(size int64) (tree, error) {
	t, err := newTmpfs(map[string]string{"size": strconv.FormatInt(size, 10), "nr_inodes": "64", "mode": "0711"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return tree{}, err
	}
	if err := fillOwn(t.fd); err != nil {
		return tree{}, errors.Join(err, t.Close())
	}
	return t, nil
}

// newTmpfs makes a tmpfs that is not attached yet.
func newTmpfs(options map[string]string, attributes int) (tree, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return tree{}, err
	}
	t, err := mountTmpfs(fs, options, attributes)
	return t, errors.Join(err, unix.Close(fs))
}

func mountTmpfs(fs int, options map[string]string, attributes int) (tree, error) {
	if err := unix.FsconfigSetString(fs, "source", sourceName); err != nil {
		return tree{}, fmt.Errorf("set source: %w", err)
	}
	for key, value := range options {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return tree{}, fmt.Errorf("set %s: %w", key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return tree{}, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	return tree{fd: fd}, err
}

func fillOwn(own int) error {
	ends, err := unix.Openat(own, endsName, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", endsName, err)
	}
	if err := unix.Close(ends); err != nil {
		return err
	}
	if err := unix.Mkdirat(own, devName, 0o755); err != nil {
		return fmt.Errorf("%s: %w", devName, err)
	}
	dev, err := unix.Openat(own, devName, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(fillDev(dev), unix.Close(dev))
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
