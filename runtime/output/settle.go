package output

import (
	"context"
	"errors"
	"io"
	"math"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Settle returns when all that was in the pipe at the time of the call is in
// the store. It is for a command that has ended while a child of it keeps the
// pipe open. It moves the bytes itself, so it needs no turn of Fill, but Fill
// must have been called, or be called soon, and its pipe still be open unless
// it ended.
func (s *Store) Settle(ctx context.Context) error {
	conn, err := s.attached(ctx)
	if conn == nil {
		return err
	}
	settled := make(chan error, 1) // the pipe's lock may be held by whoever has its other end
	go func() { settled <- s.settle(ctx, conn) }()
	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Deadline, "output.settle", context.Cause(ctx))
	}
}

// attached waits for Fill to name its pipe, and returns nil where there is
// nothing to wait for any more.
func (s *Store) attached(ctx context.Context) (syscall.RawConn, error) {
	for {
		s.mu.Lock()
		conn, over := s.pipe, s.eof || s.done
		changed := s.next()
		s.mu.Unlock()
		switch {
		case over:
			return nil, nil
		case conn != nil:
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, sbxerr.Wrap(sbxerr.Deadline, "output.settle", context.Cause(ctx))
		}
	}
}

func (s *Store) settle(ctx context.Context, conn syscall.RawConn) error {
	until := int64(math.MaxInt64) // the total with all that was in the pipe
	for ctx.Err() == nil {
		var done bool
		var moved error
		if err := conn.Control(func(fd uintptr) { done, moved = s.settleStep(int(fd), &until) }); err != nil {
			moved = err
		}
		switch {
		case done, moved != nil && s.ended():
			return nil
		case moved != nil:
			return sbxerr.Wrap(codeOf(moved), "output.settle", moved)
		}
	}
	return sbxerr.Wrap(sbxerr.Deadline, "output.settle", context.Cause(ctx))
}

// ended reports whether nothing can be unsettled any more.
func (s *Store) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eof || s.done
}

func (s *Store) settleStep(fd int, until *int64) (done bool, err error) {
	s.work.Lock()
	defer s.work.Unlock()
	total, _ := s.Total()
	if *until == math.MaxInt64 {
		n, err := unread(fd)
		if err != nil {
			return false, err
		}
		*until = total + n
	}
	if total >= *until || s.ended() {
		return true, nil
	}
	err = s.step(fd)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, io.EOF) { // the other end can take its bytes back
		return true, nil
	}
	return false, err
}
