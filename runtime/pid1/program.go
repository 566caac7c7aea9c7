package pid1

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Program is PID 1's program as it was when the daemon started, whatever becomes of
// the file on the disk. It is kept in a sealed memfd, which is none of the daemon's
// own memory.
type Program struct {
	memory *os.File
	size   int
}

// ReadProgram keeps the program that is at path. Errors are [sbxerr.Binary].
func ReadProgram(path string) (*Program, error) {
	const op = "pid1.program"
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, op, err)
	}
	fd, err := sealed("caisson-init", b)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, op, fmt.Errorf("keep %s: %w", path, err))
	}
	return &Program{os.NewFile(uintptr(fd), "caisson-init"), len(b)}, nil
}

// Close gives the memory back.
func (p *Program) Close() error { return p.memory.Close() }

// CopyTo makes the executable file path, which is not there yet, a copy. It shares
// no memory with another: one page cache for all would be what a hole in the kernel
// writes through (CVE-2022-0847 and its kind). Errors are [sbxerr.StateDir].
func (p *Program) CopyTo(path string) error {
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err == nil {
		err = errors.Join(p.sendTo(dst), dst.Close())
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "pid1.program", fmt.Errorf("copy PID 1's program: %w", err))
	}
	return nil
}

func (p *Program) sendTo(dst *os.File) error {
	for at := int64(0); at < int64(p.size); {
		n, err := unix.Sendfile(int(dst.Fd()), int(p.memory.Fd()), &at, p.size-int(at)) // which moves at
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("sendfile: %w", err)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}
