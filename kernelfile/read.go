// Package kernelfile reads files that the kernel makes up: those of /proc, /sys and
// cgroups. Many can be polled, so the package os would have each watched, which costs more
// than to read it.
package kernelfile

import (
	"errors"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// chunk is how much is asked for at once: most files are shorter, which takes two reads.
const chunk = 32 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// Read returns the file at path.
func Read(path string) (string, error) { return ReadAt(unix.AT_FDCWD, path) }

// ReadAt returns the file at path, which is looked up from the directory dirfd.
func ReadAt(dirfd int, path string) (string, error) {
	fd, err := unix.Openat(dirfd, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd) // nothing was written
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	var text strings.Builder
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return text.String(), nil
		default:
			text.Write(buf[:n])
		}
	}
}
