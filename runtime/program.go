package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// program is PID 1's program as it was when the daemon started, whatever becomes of
// the file on the disk. It is sealed memory (memfd_create(2)), none of the daemon's
// own.
type program struct {
	memory *os.File
	size   int
}

// readProgram keeps the program that is at path.
func readProgram(path string) (_ *program, err error) {
	const op = "runtime.program"
	src, err := os.Open(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, op, err)
	}
	defer src.Close()
	fd, err := unix.MemfdCreate("caisson-init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, op, fmt.Errorf("memfd_create: %w", err))
	}
	memory := os.NewFile(uintptr(fd), "caisson-init")
	n, err := io.Copy(memory, src)
	if err == nil {
		_, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		memory.Close()
		return nil, sbxerr.Wrap(sbxerr.Binary, op, fmt.Errorf("keep %s: %w", path, err))
	}
	return &program{memory, int(n)}, nil
}

// copyTo makes the executable file path, which is not there yet, a copy. It shares
// no memory with another: one page cache for all would be what a hole in the kernel
// writes through (CVE-2022-0847 and its kind).
func (p *program) copyTo(path string) (err error) {
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := dst.Close(); err == nil {
			err = closeErr
		}
	}()
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
