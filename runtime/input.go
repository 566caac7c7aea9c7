package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/plan"
)

// InputRequest is a part of a command's input.
type InputRequest struct {
	// Offset is that of the first byte of Data in the whole input. Bytes that the command
	// has are not sent again. Nil: Data comes after those.
	Offset *int64
	Data   []byte
	Close  bool // the input ends after Data
}

// InputState is how far the input of a command is.
type InputState struct {
	Offset int64 // bytes that the command has
	Closed bool  // by the caller, by the command, or because that has ended
}

// SendInput writes to the input of a command and returns when its pipe has taken all
// of it. Callers take turns. Where the command closed its input, the rest is dropped.
func (m *Manager) SendInput(ctx context.Context, ref, exec string, r InputRequest) (InputState, error) {
	defer m.Busy()()
	s, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return InputState{}, err
	}
	if !e.record.Stdin {
		return InputState{}, sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.input", "command %s of sandbox %s was started without an input", exec, ref))
	}
	ctx, stop := m.untilHandOver(ctx, s)
	defer stop()
	if _, err := e.begun(ctx); err != nil && !e.isDone() {
		return InputState{}, err
	}
	return m.sendInput(ctx, e, r)
}

// sendGiven writes input that a command was started with, until ctx ends: the daemon
// keeps no input of callers that are gone. Such a caller sends the rest with SendInput,
// from offset 0.
func (m *Manager) sendGiven(ctx context.Context, e *execution, data []byte) {
	if _, err := e.begun(ctx); err != nil {
		return // it never ran
	}
	if _, err := m.sendInput(ctx, e, InputRequest{Data: data, Close: true}); err != nil && ctx.Err() == nil {
		m.log.Warn("send input", "sandbox", e.s.id, "exec", e.number(), "err", err)
	}
}

func (m *Manager) sendInput(ctx context.Context, e *execution, r InputRequest) (InputState, error) {
	select {
	case e.feeding <- struct{}{}:
	case <-ctx.Done():
		return InputState{}, sbxerr.Wrap(sbxerr.Canceled, "runtime.input", context.Cause(ctx))
	}
	defer func() { <-e.feeding }()
	count, err := openInputCount(m.paths.input(e.s.id, e.number()))
	if err != nil {
		return InputState{}, sbxerr.Wrap(sbxerr.StateDir, "runtime.input", err)
	}
	defer count.Close()
	data, err := count.rest(r)
	if err != nil {
		return InputState{}, err
	}
	closed := e.isInputClosed()
	if !closed && len(data) > 0 {
		closed, err = count.write(ctx, e.input(), data)
	}
	if err != nil && e.isInputClosed() { // the command ended meanwhile
		closed, err = true, nil
	}
	if err == nil && (closed || r.Close) {
		closed, err = true, e.closeInput()
	}
	if err != nil && sbxerr.Of(err) == sbxerr.Unknown {
		err = sbxerr.Wrap(sbxerr.Init, "runtime.input", err)
	}
	return InputState{Offset: count.taken, Closed: closed}, err
}

// isInputClosed reports whether nothing can be written to the command any more.
func (e *execution) isInputClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stdin == nil || e.inputEnd || e.record.Result != nil
}

// inputCount counts the bytes of input that a command's pipe has taken. It is a file in
// the state directory, so that a later daemon goes on counting. A daemon that is killed
// within a write(2) leaves the bounds of a count that is not known.
type inputCount struct {
	*os.File
	taken int64
	most  int64 // what taken may be; above taken while a write is under way
}

func openInputCount(path string) (*inputCount, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	taken, most, err := readInputCount(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &inputCount{f, taken, most}, nil
}

// readInputCount reads a count. That of a new file is 0.
func readInputCount(f *os.File) (taken, most int64, err error) {
	var b [16]byte
	if _, err := f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:])), nil
}

func (c *inputCount) save(taken, most int64) error {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(taken))
	binary.LittleEndian.PutUint64(b[8:], uint64(most))
	if _, err := c.WriteAt(b[:], 0); err != nil {
		return err
	}
	c.taken, c.most = taken, most
	return nil
}

// rest returns the part of r.Data that the command does not have.
func (c *inputCount) rest(r InputRequest) ([]byte, error) {
	const op = "runtime.input"
	switch {
	case r.Offset == nil:
		return r.Data, nil
	case c.taken != c.most:
		return nil, sbxerr.Final(sbxerr.New(sbxerr.State, op,
			"the daemon was killed while it sent input: the command has %d to %d bytes of it", c.taken, c.most))
	case *r.Offset > c.taken:
		return nil, sbxerr.New(sbxerr.Config, op, "offset %d: the command has %d bytes of input, send what follows them", *r.Offset, c.taken)
	}
	return r.Data[min(c.taken-*r.Offset, int64(len(r.Data))):], nil
}

// write writes p to the pipe, waiting while it is full. It reports whether the command
// has closed its end.
func (c *inputCount) write(ctx context.Context, pipe *os.File, p []byte) (closed bool, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return false, err
	}
	if len(p) > output.UsualPipe { // one write takes all of it, and the command reads while the next comes
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, output.WidePipe) }) // that the host does not allow it is no failure
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = pipe.SetWriteDeadline(past) // one that is closed needs none
	})
	for err == nil && len(p) > 0 {
		var n int
		waitErr := raw.Write(func(fd uintptr) bool {
			n, err = c.writeOnce(int(fd), p)
			return !errors.Is(err, unix.EAGAIN)
		})
		err = errors.Join(waitErr, err)
		p = p[n:]
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

// writeOnce makes one write(2), and counts what the pipe took.
func (c *inputCount) writeOnce(fd int, p []byte) (n int, err error) {
	known := c.taken == c.most
	if err := c.save(c.taken, c.most+int64(len(p))); err != nil {
		return 0, err
	}
	n, err = unix.Write(fd, p)
	n = max(n, 0)
	most := c.taken + int64(n)
	if !known {
		most = c.most - int64(len(p)-n)
	}
	return n, errors.Join(err, c.save(c.taken+int64(n), most))
}

// ResizeExec changes the size of a command's terminal, once it runs.
func (m *Manager) ResizeExec(ctx context.Context, ref, exec string, size plan.WinSize) error {
	_, e, err := m.findExec(ctx, ref, exec)
	if err != nil {
		return err
	}
	if !e.record.TTY {
		return sbxerr.Final(sbxerr.New(sbxerr.State, "runtime.resize", "command %s of sandbox %s has no terminal", exec, ref))
	}
	proc, err := e.begun(ctx)
	if err != nil {
		return err
	}
	return proc.Resize(size.Rows, size.Cols)
}

// inputOf is how many bytes of input a command took; 0 where that is not known.
func (m *Manager) inputOf(e *execution) int64 {
	if !e.record.Stdin {
		return 0
	}
	f, err := os.Open(m.paths.input(e.s.id, e.number()))
	if err != nil {
		return 0
	}
	defer f.Close()
	taken, _, err := readInputCount(f)
	if err != nil {
		return 0
	}
	return taken
}

// input is the file that counts a command's input.
func (p paths) input(id string, n uint32) string {
	return filepath.Join(p.spare(id), number(n)+".stdin")
}
