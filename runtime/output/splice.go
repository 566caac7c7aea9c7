package output

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// splice moves up to a chunk from a pipe to f at the given offset, or wherever
// f stands for -1. It does not wait for the pipe, whoever changed its flags.
// No bytes and no error is the end of the pipe. Bytes are in f when they have
// left the pipe, which is locked throughout; see splice(2).
func splice(pipe int, f *os.File, at int64) (int64, error) {
	var off *int64
	if at >= 0 {
		off = &at
	}
	for {
		n, err := unix.Splice(pipe, nil, int(f.Fd()), off, MaxChunk, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, os.NewSyscallError("splice", err)
		}
	}
}

// pending returns nil when there are bytes in the pipe, else unix.EAGAIN or
// io.EOF. It is for a store without a file, which splice would need.
func pending(fd int) error {
	if n, err := unread(fd); n > 0 || err != nil {
		return err
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(p, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	if p[0].Revents&unix.POLLHUP == 0 {
		return unix.EAGAIN // or bytes, which the poller tells of
	}
	n, err := unread(fd) // the last writer may have written since
	if err == nil && n == 0 {
		return io.EOF
	}
	return err
}

// unread returns the bytes in the pipe; see FIONREAD in pipe(7).
func unread(fd int) (int64, error) {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD's other name, and its number
	return int64(n), os.NewSyscallError("ioctl", err)
}

// sink is where splice puts what cannot be kept. The process has one, open
// from the first Probe or loss on, so that no store needs a descriptor for it
// when there is none left.
var sink struct {
	sync.Mutex
	file *os.File
}

func openSink() (*os.File, error) {
	sink.Lock()
	defer sink.Unlock()
	if sink.file == nil {
		f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		sink.file = f
	}
	return sink.file, nil
}
