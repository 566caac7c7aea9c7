package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// Fill moves bytes from pipe into the store until the pipe ends, which is nil.
// The pipe must be one that the runtime polls (non-blocking when it became an
// *os.File). Bytes are in the page cache before they leave the pipe, so
// a daemon that is killed here loses none, and the next one goes on with Fill
// of the same pipe. What cannot be kept is counted all the same.
//
// A read deadline of the pipe ends Fill with [os.ErrDeadlineExceeded], closing
// the pipe with [os.ErrClosed], closing the store with [sbxerr.State]; Fill can
// then be called again. One Fill runs at a time.
func (s *Store) Fill(pipe *os.File) error {
	conn, err := s.attach(pipe)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "output.fill", err)
	}
	err = s.fill(conn)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		if _, gone := pipe.Stat(); errors.Is(gone, os.ErrClosed) { // the poller has a name of its own for it
			err = gone
		}
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

func (s *Store) fill(conn syscall.RawConn) error {
	for {
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
	}
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
	st := s.state()
	switch {
	case st.closed:
		return errClosed
	case st.done:
		_, err := s.drain(fd)
		return err
	case st.file == nil && !st.lost:
		if err := pending(fd); err != nil {
			return err
		}
	}
	f := s.keeper(st)
	if f == nil {
		return s.skip(fd)
	}
	n, err := splice(fd, f, st.kept)
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
	s.count(int(n), int(n))
	s.trim(false)
	s.occupy()
	s.widen(fd, n)
	return nil
}

// widen gives a command that fills its pipe a larger one, once: it then waits
// for us a quarter as often, which nearly doubles what passes. One that writes
// little does not get it. That the host does not allow it is no failure.
func (s *Store) widen(fd int, moved int64) {
	if moved < usualPipe || s.wide {
		return
	}
	s.wide = true
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, widePipe)
}

// skip counts without keeping.
func (s *Store) skip(fd int) error {
	n, err := s.drain(fd)
	s.count(n, 0)
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
