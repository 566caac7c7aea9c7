package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
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

// Skipper is what a writer may be too. Follow then tells it how many bytes are left out
// at a place. Nothing stands for them in what is written.
type Skipper interface{ Skip(n int64) error }

// Follow copies the stream from offset from on to w as it comes, until it is finished
// or ctx ends, whose cause it then returns. Without wait it copies what there is now.
// Bytes that are left out are skipped. Where that is for another reason than the limit,
// Follow returns that reason at the end ([Store.Lost]). A store that was closed before
// the reader had all is [sbxerr.State]; errors of w are returned as they are.
//
// It returns the offset at which another Follow goes on, also with an error.
func (s *Store) Follow(ctx context.Context, w io.Writer, from int64, wait bool) (next int64, err error) {
	if from < 0 {
		return from, sbxerr.New(sbxerr.Config, "output.follow", "the offset %d is negative", from)
	}
	return s.follow(ctx, &reader{s: s, w: w, pos: from, stop: -1, wait: wait})
}

func (s *Store) follow(ctx context.Context, r *reader) (next int64, err error) {
	defer r.close()
	skipped := false
	for {
		p, err := r.await(ctx)
		switch {
		case err != nil:
			return r.pos, err
		case p.end:
			if skipped {
				return r.pos, s.Lost()
			}
			return r.pos, nil
		case p.skip > 0:
			skipped = true
			err = r.skip(p.skip)
		default:
			err = r.copy(p.span)
		}
		if err != nil {
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
	hold *Hold    // that moves along; nil: none
	own  *os.File // a descriptor of its own, once the store has let go of its
	path string   // of own
}

// piece is what a reader gets next: bytes, or how many are skipped, or the end. The
// empty piece is to wait.
type piece struct {
	span
	skip int64
	end  bool
}

// await returns what comes next, when there is something.
func (r *reader) await(ctx context.Context) (piece, error) {
	s := r.s
	for {
		if ctx.Err() != nil {
			return piece{}, context.Cause(ctx)
		}
		s.mu.Lock()
		p, closed := r.plan(), s.closed
		changed := s.next()
		s.mu.Unlock()
		switch {
		case p.end, p.skip > 0, !closed && p.size() > 0:
			return p, nil
		case closed:
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
	total, kept, out := s.total, s.kept, s.leftOut()
	if !r.wait {
		total, kept = min(total, r.stop), min(kept, r.stop)
	}
	switch {
	case r.pos >= total:
		return piece{end: s.done || !r.wait}
	case r.pos >= kept: // lost
		return piece{skip: total - r.pos}
	case out.size() == 0 || r.pos >= out.to:
		return piece{span: span{r.pos, kept}}
	case r.pos < out.from:
		return piece{span: span{r.pos, min(out.from, kept)}}
	}
	return piece{skip: min(out.to, total) - r.pos}
}

// copy writes the next bytes of at, as many as fit a buffer. Where they were left out
// while they were read, nothing is written: what comes next is to be asked again.
func (r *reader) copy(at span) error {
	pool := poolFor(at.size())
	b := pool.Get().(*[]byte)
	defer pool.Put(b)
	at.to = min(at.to, at.from+int64(len(*b)))
	n, err := r.read((*b)[:at.size()], at)
	if err != nil || n == 0 {
		return err
	}
	if _, err := r.w.Write((*b)[:n]); err != nil {
		return err
	}
	r.move(int64(n))
	return nil
}

// skip tells the writer of bytes that are left out.
func (r *reader) skip(n int64) error {
	if w, ok := r.w.(Skipper); ok {
		if err := w.Skip(n); err != nil {
			return err
		}
	}
	r.move(n)
	return nil
}

func (r *reader) move(n int64) {
	r.pos += n
	if r.hold != nil {
		r.hold.move(r.pos)
	}
}

// read fills buf with the bytes of at, or with the first of them, and returns how many
// are those of the stream still.
func (r *reader) read(buf []byte, at span) (n int, err error) {
	s := r.s
	f, live, most, err := r.file(at.from)
	if err != nil || f == nil {
		return 0, err
	}
	buf = buf[:min(int64(len(buf)), most)]
	if live && len(buf) > smallBuffer {
		s.turns <- struct{}{}
		defer func() { <-s.turns }()
	}
	n, err = f.ReadAt(buf, at.from) // the file keeps its descriptor while it is read
	switch {
	case n == len(buf):
	case errors.Is(err, os.ErrClosed): // the store has let go of it, or was closed
		return 0, nil
	default:
		return 0, sbxerr.Wrap(sbxerr.StateDir, "output.follow", fmt.Errorf("read %d bytes of %q at %d: %w", len(buf), f.Name(), at.from, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leftOut().within(span{at.from, at.from + int64(n)}).size() > 0 {
		return 0, nil
	}
	return n, nil
}

// file returns the file that has the byte at an offset, or the reader's own where the
// stream is finished; whether more may come; and how many bytes it may have from there.
func (r *reader) file(at int64) (f *os.File, live bool, most int64, err error) {
	const op = "output.follow"
	s := r.s
	s.mu.Lock()
	f, live, closed, path, most := s.own, !s.done, s.closed, s.o.Path, int64(math.MaxInt64)
	if s.split >= 0 && at >= s.split {
		f, path = s.spare, s.o.Spare
	} else if s.split >= 0 {
		most = s.split - at
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, false, 0, sbxerr.Wrap(sbxerr.State, op, errClosed)
	case f != nil:
		return f, live, most, nil
	case r.path != path:
		r.close()
		if r.own, err = openFile(path, unix.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return nil, false, 0, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
		r.path = path
	}
	return r.own, false, most, nil
}

func (r *reader) close() {
	if r.own != nil {
		_ = r.own.Close() // it was only read
	}
	r.own, r.path = nil, ""
}
