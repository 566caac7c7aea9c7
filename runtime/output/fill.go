package output

import (
	"cmp"
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
	UsualPipe, WidePipe = 64 << 10, 512 << 10
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
	switch {
	case errors.Is(err, errClosed):
		return sbxerr.State
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sbxerr.Deadline
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
	s.change(func() {
		if s.filling {
			err = errors.New("the store is being filled already")
			return
		}
		s.filling, s.pipe, s.eof = true, conn, false
	})
	return conn, err
}

func (s *Store) fill(ctx context.Context, conn syscall.RawConn) error {
	wide := false
	for {
		if err := s.await(ctx, s.hasPlace); err != nil {
			return err
		}
		var n int64
		var moved error
		err := conn.Read(func(fd uintptr) bool {
			n, moved = s.take(int(fd))
			if n >= UsualPipe && !wide { // the command then waits for us an eighth as often; one that writes little does not get it
				wide = true
				_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, WidePipe) // that the host does not allow it is no failure
			}
			return !errors.Is(moved, unix.EAGAIN)
		})
		err = cmp.Or(err, moved)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && s.discards() {
			err = s.o.Discard.WaitN(ctx, int(n))
		}
		if err != nil {
			return err
		}
	}
}

// discards reports whether bytes come in place of which others are left out, as nobody
// reads them, and are paced.
func (s *Store) discards() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Discard != nil && len(s.holds) == 0 && !s.done && s.total > s.o.Limit
}

// take moves the next bytes of a pipe into the store, up to a chunk, and counts them.
// It never waits for the pipe: unix.EAGAIN is that there is nothing now, io.EOF that there
// will be nothing.
func (s *Store) take(pipe int) (int64, error) {
	s.work.Lock()
	defer s.work.Unlock()
	for {
		s.mu.Lock()
		last, at, lost, done, closed := s.parts[len(s.parts)-1], s.kept, s.broken, s.done, s.closed
		s.mu.Unlock()
		if closed {
			return 0, errClosed
		}
		if done || lost {
			n, err := discard(pipe)
			if !done {
				s.change(func() { s.total += n })
			}
			return n, err
		}
		if last.file == nil { // which is made for a byte
			if err := ready(pipe); err != nil {
				return 0, err
			}
		}
		s.recall()
		n, err := s.put(last, pipe, at)
		switch {
		case err == nil:
			s.stamp(at)
			s.change(func() { s.total, s.kept = s.total+n, s.kept+n })
			s.fit()
			return n, nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, io.EOF):
			return 0, err
		case !s.turn(err):
			s.lose(err)
		}
	}
}

// put moves bytes into the last part, whose file it makes for the first of them.
func (s *Store) put(last part, pipe int, at int64) (int64, error) {
	if last.file == nil {
		f, err := createFile(last.path)
		if err != nil {
			return 0, err
		}
		s.change(func() { s.parts[len(s.parts)-1].file = f })
		last.file = f
	}
	return splice(pipe, last.file, &at)
}

func createFile(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, modeWhole)
}

// Write appends p, as Fill does of a pipe.
func (s *Store) Write(p []byte) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Internal, "output.write", err)
	}
	defer r.Close()
	go func() {
		_, _ = w.Write(p) // nobody reads on: Fill says why
		_ = w.Close()
	}()
	if err := s.Fill(context.Background(), r); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Settle returns when all that was in the pipe at the time of the call is in the store.
// It is for a command that has ended while a child of it keeps the pipe open. It moves
// the bytes itself, as Fill may wait for a reader. Fill must have been called, or be
// called soon, and its pipe still be open unless it ended.
func (s *Store) Settle(ctx context.Context) error {
	const op = "output.settle"
	var conn syscall.RawConn
	ended := func() bool { return s.eof || s.done }
	if err := s.await(ctx, func() bool { conn = s.pipe; return conn != nil || ended() }); err != nil {
		return sbxerr.Wrap(sbxerr.Deadline, op, err)
	}
	if conn == nil {
		return nil
	}
	settled := make(chan error, 1) // the pipe's lock may be held by whoever has its other end
	go func() {
		var err error
		failed := conn.Control(func(fd uintptr) { err = s.settle(ctx, int(fd)) })
		settled <- cmp.Or(failed, err)
	}()
	select {
	case err := <-settled:
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil || ended() {
			return nil
		}
		return sbxerr.Wrap(codeOf(err), op, err)
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Deadline, op, context.Cause(ctx))
	}
}

// settle moves as many bytes as the pipe holds. Others may move some of them too.
func (s *Store) settle(ctx context.Context, pipe int) error {
	s.work.Lock() // what has left the pipe is counted
	left, err := unread(pipe)
	s.work.Unlock()
	for left > 0 && err == nil {
		var n int64
		n, err = s.take(pipe)
		left -= n
		err = cmp.Or(err, context.Cause(ctx))
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, io.EOF) { // the other end can take its bytes back
		return nil
	}
	return err
}
