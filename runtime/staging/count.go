package staging

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/output"
)

// Count counts the bytes of input that a command has: those that its pipe has taken.
type Count struct {
	record  *os.File
	staging *os.File
	taken   int64 // bytes that the command had before the staged ones
	staged  int64
}

// Open reads the count that is recorded in the file path, and completes a move that an earlier
// daemon began. Without a staging pipe there is none to complete.
func Open(path string, staging *os.File) (*Count, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	c := &Count{record: f, staging: staging}
	c.taken, c.staged, err = read(f)
	if err == nil && staging != nil {
		var left int64
		if left, err = held(staging); err == nil {
			err = c.settle(left)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// Close closes the record.
func (c *Count) Close() error { return c.record.Close() }

// Taken is how many bytes the command has.
func (c *Count) Taken() int64 { return c.taken }

// Read returns how many bytes the command has whose count is in the file path. It is less while
// some are moved. Of a staging pipe it does not know it counts nothing.
func Read(path string, staging *os.File) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was read only
	taken, staged, err := read(f)
	if err != nil || staging == nil || staged == 0 {
		return taken, err
	}
	if left, err := held(staging); err == nil {
		taken += max(0, staged-left)
	}
	return taken, nil
}

// read reads a count. That of a new file is 0.
func read(f *os.File) (taken, staged int64, err error) {
	var b [16]byte
	if _, err := f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:])), nil
}

// save records a count, which is written in one step.
func (c *Count) save(taken, staged int64) error {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(taken))
	binary.LittleEndian.PutUint64(b[8:], uint64(staged))
	if _, err := c.record.WriteAt(b[:], 0); err != nil {
		return err
	}
	c.taken, c.staged = taken, staged
	return nil
}

// settle counts the staged bytes that the command has, and drops those that are left. The
// record comes first: once the staging pipe is empty it tells nothing.
func (c *Count) settle(left int64) error {
	if c.staged > 0 {
		if err := c.save(c.taken+c.staged-min(left, c.staged), 0); err != nil {
			return err
		}
	}
	if left == 0 {
		return nil
	}
	return drop(c.staging, left)
}

// past is a deadline that has been passed: it wakes whoever waits.
var past = time.Unix(1, 0)

// held is how many bytes a pipe holds.
func held(pipe *os.File) (n int64, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var got int
		got, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		n = int64(got)
	})
	return n, errors.Join(cerr, err)
}

// drop reads n bytes that a pipe holds.
func drop(pipe *os.File, n int64) error {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, min(n, output.UsualPipe))
	for n > 0 && err == nil {
		got := 0
		cerr := raw.Control(func(fd uintptr) { got, err = unix.Read(int(fd), buf[:min(n, int64(len(buf)))]) })
		if errors.Is(err, unix.EAGAIN) { // a PID 1 that reads its staging pipes gets the blame
			return cerr
		}
		n, err = n-int64(got), errors.Join(cerr, err)
	}
	return err
}

// Rest returns the part of data that the command does not have. offset is that of its first byte
// in the whole input; nil: it comes after what the command has.
func (c *Count) Rest(offset *int64, data []byte) ([]byte, error) {
	switch {
	case offset == nil:
		return data, nil
	case *offset > c.taken:
		return nil, sbxerr.New(sbxerr.Config, "runtime.input", "offset %d: the command has %d bytes of input, send what follows them", *offset, c.taken)
	}
	return data[min(c.taken-*offset, int64(len(data))):], nil
}

// Write moves p to the command's pipe, waiting while that is full. It reports whether the
// command has closed its end.
func (c *Count) Write(ctx context.Context, pipe *os.File, p []byte) (closed bool, err error) {
	if len(p) > output.UsualPipe { // one move takes much of it, and the command reads while the next comes
		widen(c.staging)
		widen(pipe)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = pipe.SetWriteDeadline(past) // one that is closed needs none
	})
	for err == nil && len(p) > 0 {
		if err = c.stage(p); err == nil {
			p = p[c.staged:]
			var left int64
			left, err = c.move(pipe)
			err = errors.Join(err, c.settle(left))
		}
	}
	if !stop() {
		<-woken
		_ = pipe.SetWriteDeadline(time.Time{}) // for the next turn
	}
	switch {
	case errors.Is(err, unix.EPIPE):
		return true, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, sbxerr.Wrap(sbxerr.Canceled, "runtime.input", context.Cause(ctx))
	}
	return false, err
}

// stage fills the empty staging pipe with the beginning of p.
func (c *Count) stage(p []byte) error {
	raw, err := c.staging.SyscallConn()
	if err != nil {
		return err
	}
	n := 0
	cerr := raw.Control(func(fd uintptr) { n, err = unix.Write(int(fd), p) })
	if err := errors.Join(cerr, err); err != nil {
		return err
	}
	return c.save(c.taken, int64(n))
}

// move moves the staged bytes to the command's pipe, and returns how many are left.
func (c *Count) move(pipe *os.File) (left int64, err error) {
	left = c.staged
	from, err := c.staging.SyscallConn()
	if err != nil {
		return left, err
	}
	to, err := pipe.SyscallConn()
	if err != nil {
		return left, err
	}
	wide := false
	for left > 0 && err == nil {
		var n int64
		werr := to.Write(func(out uintptr) bool {
			cerr := from.Control(func(in uintptr) {
				n, err = unix.Splice(int(in), nil, int(out), nil, int(left), unix.SPLICE_F_NONBLOCK)
			})
			err = errors.Join(cerr, err)
			return !wide || !errors.Is(err, unix.EAGAIN)
		})
		if !wide && errors.Is(err, unix.EAGAIN) { // many small parts fill a pipe with few bytes
			widen(pipe)
			wide, err = true, nil
		}
		left, err = left-max(n, 0), errors.Join(werr, err)
	}
	return left, err
}

// widen enlarges a pipe. That the host does not allow it is no failure.
func widen(pipe *os.File) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, output.WidePipe) })
}
