package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

const (
	smallBuffer = 16 << 10
	largeBuffer = 256 << 10
)

// Buffers are held only while bytes are on their way, so that a reader that
// waits costs none.
var (
	smallBuffers = sync.Pool{New: func() any { return newBuffer(smallBuffer) }}
	largeBuffers = sync.Pool{New: func() any { return newBuffer(largeBuffer) }}
)

func newBuffer(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

func poolFor(n int64) *sync.Pool {
	if n <= smallBuffer {
		return &smallBuffers
	}
	return &largeBuffers
}

// Skipper is what a writer may be too. Follow then tells it how many bytes are
// left out at a place, and writes no mark there: so the writer knows the offset
// in the stream of every byte.
type Skipper interface{ Skip(n int64) error }

// Follow copies the stream from offset from on to w, until it is finished or
// ctx ends, whose cause it then returns: every byte up to the limit as it
// comes; then, if the stream passed the limit, at its end a mark ([Mark]) for
// what is left out, of which a [Skipper] is told, and the last bytes. An offset among those that are left out
// starts with the mark. Without wait Follow copies what there is now.
//
// Where bytes could not be kept, Follow copies those that were, writes a mark
// for the rest and returns [Store.Lost]. A store that was closed before the
// reader had all is [sbxerr.State]; errors of w are returned as they are.
//
// It returns the offset at which another Follow goes on, also with an error.
func (s *Store) Follow(ctx context.Context, w io.Writer, from int64, wait bool) (next int64, err error) {
	const op = "output.follow"
	if from < 0 {
		return from, sbxerr.New(sbxerr.Config, op, "the offset %d is negative", from)
	}
	r := reader{s: s, w: w, pos: from, stop: -1, wait: wait}
	defer r.close()
	for {
		p, err := r.await(ctx)
		if err != nil {
			return r.pos, err
		}
		if p.end && p.from == p.to {
			return r.pos + p.skip, errors.Join(r.mark(p.skip), s.Lost())
		}
		if err := r.copy(p); err != nil {
			return r.pos, err
		}
	}
}

// reader is one run of Follow.
type reader struct {
	s    *Store
	w    io.Writer
	pos  int64 // in the stream
	stop int64 // where the stream ends for a reader that does not wait; -1 before that is known
	wait bool
	own  *os.File // once the store has let go of its own
}

// await returns what comes next, when there is something.
func (r *reader) await(ctx context.Context) (piece, error) {
	s := r.s
	for {
		if ctx.Err() != nil {
			return piece{}, context.Cause(ctx)
		}
		s.mu.Lock()
		p := r.plan()
		if p.end && p.from == p.to || !p.empty() && !s.closed {
			s.mu.Unlock()
			return p, nil
		}
		closed := s.closed
		changed := s.next()
		s.mu.Unlock()
		if closed {
			return piece{}, sbxerr.Wrap(sbxerr.State, "output.follow", errClosed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// plan says what comes next; the store's mu is held.
func (r *reader) plan() piece {
	s := r.s
	if !r.wait && r.stop < 0 {
		r.stop = s.total
	}
	p := s.bound.next(r.pos, view{total: s.total, kept: s.kept, last: s.done || !r.wait})
	if !r.wait {
		p = p.upTo(r.stop, r.pos)
	}
	return p
}

// copy writes the next bytes of p, as many as fit a buffer. Where they were
// punched while they were read, nothing is written: the reader was overtaken,
// and what comes next is to be asked again.
func (r *reader) copy(p piece) error {
	pool := poolFor(p.to - p.from)
	b := pool.Get().(*[]byte)
	defer pool.Put(b)
	buf := (*b)[:min(int64(len(*b)), p.to-p.from)]
	got := span{p.from, p.from + int64(len(buf))}
	whole, err := r.read(buf, got)
	if err != nil || !whole {
		return err
	}
	if err := r.mark(p.skip); err != nil {
		return err
	}
	if _, err := r.w.Write(buf); err != nil {
		return err
	}
	r.pos = got.to
	return nil
}

// mark says that bytes are skipped, if there are any.
func (r *reader) mark(skipped int64) error {
	if skipped == 0 {
		return nil
	}
	if w, ok := r.w.(Skipper); ok {
		return w.Skip(skipped)
	}
	_, err := io.WriteString(r.w, Mark(skipped))
	return err
}

// read fills buf with the bytes of at, and reports whether they are those of
// the stream still.
func (r *reader) read(buf []byte, at span) (whole bool, err error) {
	s := r.s
	f, live, err := r.file()
	if err != nil {
		return false, err
	}
	if live && len(buf) > smallBuffer {
		s.turns <- struct{}{}
		defer func() { <-s.turns }()
	}
	n, err := f.ReadAt(buf, at.from) // the file keeps its descriptor while it is read
	switch {
	case n == len(buf):
	case errors.Is(err, os.ErrClosed): // the store has let go of it, or was closed
		return false, nil
	default:
		return false, sbxerr.Wrap(sbxerr.StateDir, "output.follow", fmt.Errorf("read %d bytes of %q at %d: %w", len(buf), s.path, at.from, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.bound.punched(at, s.gone) && !s.forgotten(), nil
}

// file returns the store's file, or one of the reader's own where the stream is
// finished, and whether more may come.
func (r *reader) file() (f *os.File, live bool, err error) {
	const op = "output.follow"
	s := r.s
	s.mu.Lock()
	f, live, closed := s.file, !s.done, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, false, sbxerr.Wrap(sbxerr.State, op, errClosed)
	case f != nil:
		return f, live, nil
	case r.own == nil:
		if r.own, err = openFile(s.path, unix.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return nil, false, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
	}
	return r.own, false, nil
}

func (r *reader) close() {
	if r.own != nil {
		_ = r.own.Close() // it was only read
	}
}
