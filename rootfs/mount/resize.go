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

// ResizeTmpfs gives each tmpfs in the mount namespace of a live sandbox its size in bytes,
// by its point. A point is a clean absolute path. For sandbox and the caller's rights see
// AttachInto. All else about the mounts stays.
//
// The kernel refuses a size below what a tmpfs holds. After an error some may have the new
// size and others the old one.
func ResizeTmpfs(sandbox *os.File, sizes map[string]int64) error {
	return sbxerr.Wrap(sbxerr.Mount, "mount.resize", onThrowawayThread(func() error {
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		for point, bytes := range sizes {
			if err := resize(strings.TrimPrefix(point, "/"), bytes); err != nil {
				return fmt.Errorf("give the tmpfs at %q %d bytes: %w", point, bytes, err)
			}
		}
		return nil
	}))
}

func resize(point string, bytes int64) (err error) {
	dir, err := openTmpfs(point)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(dir)) }()
	fs, err := unix.Fspick(dir, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("pick the file system: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fs)) }()
	if err := unix.FsconfigSetString(fs, "size", strconv.FormatInt(bytes, 10)); err != nil {
		return fmt.Errorf("set the size: %w", err)
	}
	return unix.FsconfigReconfigure(fs)
}

// openTmpfs opens a directory. An absolute path is the daemon's own. Any other one is below
// the working directory, the root of a sandbox, and no link is followed there.
func openTmpfs(name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}
	if !filepath.IsAbs(name) {
		how.Resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	if err != nil {
		return -1, fmt.Errorf("open the mount point: %w", err)
	}
	var stat unix.Statfs_t
	err = unix.Fstatfs(fd, &stat)
	if err == nil && stat.Type != unix.TMPFS_MAGIC {
		err = fmt.Errorf("the file system is of type %#x", stat.Type)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
