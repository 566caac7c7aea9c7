package output

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// splice moves up to a chunk from a pipe to f at an offset, or wherever f stands where
// that is nil. It does not wait for the pipe, whoever changed its flags: unix.EAGAIN.
// io.EOF is the end of the pipe. Bytes are in f when they have left the pipe, which is
// locked throughout; see splice(2).
func splice(pipe int, f *os.File, at *int64) (n int64, err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, err = unix.Splice(pipe, nil, int(f.Fd()), at, MaxChunk, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	}
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return max(n, 0), os.NewSyscallError("splice", err)
}

// discard throws away what is in the pipe, up to a chunk.
func discard(pipe int) (int64, error) {
	f, err := sink()
	if err != nil {
		return 0, err
	}
	return splice(pipe, f, nil)
}

// sink is where splice puts what cannot be kept. The process has one, open from the
// first Probe or loss on, so that no store needs a descriptor for it when there is none
// left.
var sink = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) })

// ready returns nil when there are bytes in the pipe, else unix.EAGAIN or io.EOF. It is
// for a store without a file, which splice would need.
func ready(pipe int) error {
	p := []unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}
	if _, err := unix.Poll(p, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	n, err := unread(pipe) // after the poll, as the last writer may have written before it left
	switch {
	case n > 0 || err != nil:
		return err
	case p[0].Revents&unix.POLLHUP != 0:
		return io.EOF
	}
	return unix.EAGAIN // or bytes, which the poller tells of
}

// unread returns the bytes in the pipe; see FIONREAD in pipe(7).
func unread(pipe int) (int64, error) {
	n, err := unix.IoctlGetInt(pipe, unix.TIOCINQ) // FIONREAD's other name, and its number
	return int64(n), os.NewSyscallError("ioctl", err)
}
