package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
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
	if err := fillUpper(t.fd, owner); err != nil {
		return tree{}, errors.Join(err, t.Close())
	}
	return t, nil
}

// fillUpper makes the directories of an upper layer in the root of an empty file system.
func fillUpper(dir, owner int) error {
	if err := unix.Mkdirat(dir, workName, 0o755); err != nil {
		return fmt.Errorf("%s: %w", workName, err)
	}
	if err := makeOwned(dir, upperName, 0o755, owner, owner); err != nil {
		return fmt.Errorf("%s: %w", upperName, err)
	}
	return nil
}

// Dir is a directory that a writable root has beside those of its image. What is above it
// belongs to root. Ids are those inside.
type Dir struct {
	Name     string // below the root, without a leading slash
	Mode     uint32
	UID, GID uint32
}

// PrepareUpper makes an upper layer on the disk that is mounted at point, which is empty,
// with directories that the image lacks. It belongs to owner, as AttachUpper says. A sandbox
// has not seen it yet.
func PrepareUpper(point string, owner uint32, dirs []Dir) error {
	disk, err := os.OpenFile(point, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == nil {
		err = fillUpper(int(disk.Fd()), int(owner))
		for _, d := range dirs {
			if err == nil {
				err = d.make(int(disk.Fd()), owner)
			}
		}
		err = errors.Join(err, disk.Close())
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.upper", err)
}

// ContinueUpper prepares the upper layer on the disk at point, which an earlier sandbox has
// filled, for another overlay. What overlayfs keeps beside the layer is of that mount alone.
func ContinueUpper(point string) error {
	err := owndir.RemoveTree(filepath.Join(point, workName))
	if err == nil {
		err = os.Mkdir(filepath.Join(point, workName), 0o755)
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.upper", err)
}

func (d Dir) make(disk int, owner uint32) error {
	if !filepath.IsLocal(d.Name) {
		return fmt.Errorf("directory %q is not below the root", d.Name)
	}
	if parent := filepath.Dir(d.Name); parent != "." {
		above := Dir{Name: parent, Mode: 0o755}
		if err := above.make(disk, owner); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return makeOwned(disk, filepath.Join(upperName, d.Name), d.Mode, int(owner+d.UID), int(owner+d.GID))
}
