package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const memoryFileName = "file"

// MemoryFile is a file of one sandbox that is on no disk. Its ids are those of the host.
type MemoryFile struct {
	Data     []byte
	UID, GID uint32
	Mode     uint32
	Program  bool // it can be executed
}

// MemoryFileIn is where a file system of MemoryFile.Attach has the file.
func MemoryFileIn(point string) string { return filepath.Join(point, memoryFileName) }

// Attach mounts a file system with the file at dir, which exists.
func (f MemoryFile) Attach(dir string) error {
	t, err := newTmpfs(map[string]string{"size": strconv.Itoa(len(f.Data) + os.Getpagesize()), "nr_inodes": "8", "mode": "0711"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err == nil {
		err = errors.Join(f.write(t.fd), t.attach(dir), t.Close())
	}
	if err != nil {
		err = fmt.Errorf("make a file in memory: %w", err)
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.memoryfile", err)
}

func (f MemoryFile) write(dir int) error {
	fd, err := unix.Openat(dir, memoryFileName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), memoryFileName)
	_, err = file.Write(f.Data)
	return errors.Join(err, file.Chown(int(f.UID), int(f.GID)), file.Chmod(os.FileMode(f.Mode)), file.Close())
}
