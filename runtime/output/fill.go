package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	// MaxChunk is the most that one splice moves, in bytes.
	MaxChunk = 256 << 10
	// UsualPipe is what a pipe holds at first, WidePipe what the pipe of a command
	// gets that writes or reads much, in bytes; see F_SETPIPE_SZ in fcntl(2).
	UsualPipe, WidePipe = 64 << 10, 256 << 10
)

// Fill moves bytes from pipe into the store until the pipe ends, which is nil, or ctx
// does, whose cause it then returns. The pipe must be one that the runtime polls
// (non-blocking when it became an *os.File). Bytes are in the page cache before they
// leave the pipe, so a daemon that is killed here loses none, and the next one goes on
// with Fill of the same pipe. What cannot be kept is counted all the same.
//
// Closing the pipe ends Fill with [os.ErrClosed], closing the store with
// [sbxerr.State]. Fill can then be called again. One Fill runs at a time.
func (s *Store) Fill(ctx context.Context, pipe *os.File) error {
	conn, err := s.attach(pipe)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "output.fill", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Unix(1, 0)) }) // one that is closed needs none
	err = s.fill(ctx, conn)
	stop()
	if _, gone := pipe.Stat(); err != nil && errors.Is(gone, os.ErrClosed) { // the poller has a name of its own for it
		err = gone
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = sbxerr.Wrap(codeOf(err), "output.fill", err)
	}
	s.change(func() { s.filling, s.eof = false, err == nil })
	return err
}

func codeOf(err error) sbxerr.Code {
	if errors.Is(err, errClosed) {
		return sbxerr.State
	}
	return sbxerr.Internal
}

// attach makes pipe the one that the store is filled from.
func (s *Store) attach(pipe *os.File) (syscall.RawConn, error) {
	st, err := pipe.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode()&os.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("%q is not a pipe", pipe.Name())
	}
	conn, err := pipe.SyscallConn()
	if err != nil {
		return nil, err
	}
	s.work.Lock()
	defer s.work.Unlock()
	s.change(func() {
		if s.filling {
			err = errors.New("the store is being filled already")
			return
		}
		s.filling, s.pipe, s.eof, s.wide = true, conn, false, false
	})
	return conn, err
}

func (s *Store) fill(ctx context.Context, conn syscall.RawConn) error {
	for {
		if err := s.awaitPlace(ctx); err != nil {
			return err
		}
		before := s.discarded()
		var moved error
		err := conn.Read(func(fd uintptr) bool {
			moved = s.move(int(fd))
			return !errors.Is(moved, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return err
		case errors.Is(moved, io.EOF):
			return nil
		case moved != nil:
			return moved
		}
		if n := s.discarded() - before; n > 0 && s.o.Discard != nil {
			if err := s.o.Discard.WaitN(ctx, int(min(n, MaxChunk))); err != nil {
				return err
			}
		}
	}
}

// discarded counts the bytes in place of which others are left out, as nobody reads them.
func (s *Store) discarded() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holds) > 0 || s.done {
		return 0
	}
	return max(0, s.total-s.o.Limit)
}

func (s *Store) move(fd int) error {
	s.work.Lock()
	defer s.work.Unlock()
	return s.step(fd)
}

// step moves and counts what is in the pipe, up to a chunk. It never waits for
// the pipe: unix.EAGAIN is that there is nothing now, io.EOF that there will be
// nothing. The caller holds work.
func (s *Store) step(fd int) error {
	t := s.target()
	switch {
	case t.closed:
		return errClosed
	case t.done:
		_, err := s.drain(fd)
		return err
	case t.broken:
		return s.skip(fd)
	case t.file == nil: // which is made for a byte
		if err := pending(fd); err != nil {
			return err
		}
	}
	f, err := s.file(t)
	var n int64
	if err == nil {
		n, err = splice(fd, f, t.at)
	}
	switch {
	case errors.Is(err, unix.EAGAIN):
		return err
	case err != nil && s.turn(err):
		return s.step(fd)
	case err != nil:
		s.lose(err)
		return s.skip(fd)
	case n == 0:
		return io.EOF
	}
	s.keep(n)
	s.widen(fd, n)
	return nil
}

// Write appends p, for a source that is no pipe. It does not fail for a full disk:
// the total stays true and Lost says what happened.
func (s *Store) Write(p []byte) (int, error) {
	s.work.Lock()
	defer s.work.Unlock()
	t := s.target()
	if t.done || t.closed {
		return 0, sbxerr.Wrap(sbxerr.State, "output.write", errClosed)
	}
	for done := 0; done < len(p); {
		n := s.append(p[done:min(len(p), done+MaxChunk)])
		done += n
	}
	return len(p), nil
}

// append keeps or counts some of p.
func (s *Store) append(p []byte) int {
	t := s.target()
	if t.broken {
		s.change(func() { s.total += int64(len(p)) })
		return len(p)
	}
	f, err := s.file(t)
	n := 0
	if err == nil {
		n, err = f.WriteAt(p, t.at)
	}
	if n > 0 {
		s.keep(int64(n))
		return n
	}
	if !s.turn(err) {
		s.lose(err)
	}
	return 0
}

// target is where the next bytes go.
type target struct {
	file                 *os.File // nil where it is to be made
	at                   int64
	broken, done, closed bool
}

func (s *Store) target() target {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := target{s.own, s.kept, s.broken, s.done, s.closed}
	if s.split >= 0 {
		t.file = s.spare
	}
	return t
}

// file returns the file of t, which it makes for the first byte.
func (s *Store) file(t target) (*os.File, error) {
	if t.file != nil {
		return t.file, nil
	}
	f, err := openFile(s.o.Path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, modeWhole)
	if err == nil {
		s.change(func() { s.own = f })
	}
	return f, err
}

// keep counts n bytes that reached a file.
func (s *Store) keep(n int64) {
	s.change(func() {
		s.total += n
		s.kept += n
	})
	s.cut()
	s.charge()
}

// widen gives a command that fills its pipe a larger one, once: it then waits
// for us a quarter as often, which nearly doubles what passes. One that writes
// little does not get it. That the host does not allow it is no failure.
func (s *Store) widen(fd int, moved int64) {
	if moved < UsualPipe || s.wide {
		return
	}
	s.wide = true
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, WidePipe)
}

// skip counts without keeping.
func (s *Store) skip(fd int) error {
	n, err := s.drain(fd)
	s.change(func() { s.total += int64(n) })
	return err
}

// drain throws away what is in the pipe.
func (s *Store) drain(fd int) (int, error) {
	f, err := openSink()
	if err != nil {
		return 0, err
	}
	n, err := splice(fd, f, -1)
	if err == nil && n == 0 {
		err = io.EOF
	}
	return int(n), err
}
