package mount

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The directories of a file system of AttachUpper (overlayfs.rst).
const (
	upperName = "upper"
	workName  = "work"
)

// UpperDir is where a file system of AttachUpper holds what was changed.
func UpperDir(point string) string { return filepath.Join(point, upperName) }

// AttachUpper mounts a tmpfs at dir, which exists. It is the upper layer of one writable
// [Root], for size bytes and a number of inodes. What a process writes there is charged to
// its cgroup. Ids on it are those of the host: it belongs to owner, the sandbox's root.
// An overlay can write to no id-mapped layer unless its own user is mapped there.
//
// It is no directory of the host's disk: a tmpfs is bounded, and ends with its mount,
// however the daemon ends.
func AttachUpper(dir string, owner uint32, size, inodes int64) error {
	t, err := newUpper(int(owner), size, inodes)
	if err == nil {
		err = errors.Join(t.attach(dir), t.Close())
	}
	if err != nil {
		err = fmt.Errorf("make the upper layer: %w", err)
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.upper", err)
}

func newUpper(owner int, size, inodes int64) (tree, error) {
	t, err := newTmpfs(map[string]string{"size": strconv.FormatInt(size, 10), "nr_inodes": strconv.FormatInt(inodes, 10), "mode": "0711"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return tree{}, err
	}
	for _, name := range []string{upperName, workName} {
		if err := unix.Mkdirat(t.fd, name, 0o755); err != nil {
			return tree{}, errors.Join(fmt.Errorf("%s: %w", name, err), t.Close())
		}
	}
	if err := unix.Fchownat(t.fd, upperName, owner, owner, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return tree{}, errors.Join(fmt.Errorf("%s: %w", upperName, err), t.Close())
	}
	return t, nil
}
