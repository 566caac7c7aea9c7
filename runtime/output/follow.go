package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const (
	smallBuffer = 16 << 10
	largeBuffer = 256 << 10
)

// Buffers are held only while bytes are on their way, so that a reader that
// waits costs none.
var smallBuffers, largeBuffers = bufferPool(smallBuffer), bufferPool(largeBuffer)

func bufferPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// Skipper is what a writer may be too. Follow then tells it how many bytes are left out
// at a place. Nothing stands for them in what is written.
type Skipper interface{ Skip(n int64) error }

// Placer is an optional interface of a writer. Follow gives it the offset of the next Write
// and the time at which those bytes came: at first, and whenever the time changes. Zero is an
// unknown time.
type Placer interface {
	Place(offset int64, came time.Time) error
}

// Follow copies the stream from offset from on to w as it comes, until it is finished
// or ctx ends, whose cause it then returns. Without wait it copies what there is now.
// Bytes that are left out are skipped. Where that is for another reason than the limit,
// Follow returns that reason at the end ([Store.Lost]). A store that was closed before
// the reader had all is [sbxerr.State]; errors of w are returned as they are.
//
// It returns the offset at which another Follow goes on, also with an error.
func (s *Store) Follow(ctx context.Context, w io.Writer, from int64, wait bool) (next int64, err error) {
	return s.FollowUntil(ctx, w, from, wait, time.Time{})
}

// FollowUntil is Follow up to what came at a time. With wait it ends then at the latest.
// A byte of which no time is known is copied. The zero time is no bound.
func (s *Store) FollowUntil(ctx context.Context, w io.Writer, from int64, wait bool, until time.Time) (next int64, err error) {
	if from < 0 {
		return from, sbxerr.New(sbxerr.Config, "output.follow", "the offset %d is negative", from)
	}
	r := newReader(s, w, from, wait)
	if !until.IsZero() {
		r.until = until
		defer time.AfterFunc(time.Until(until.Add(resolution)), func() { s.change(func() { r.wait = false }) }).Stop()
	}
	err = r.follow(ctx)
	return r.pos, err
}

// reader is one run of Follow.
type reader struct {
	s    *Store
	w    io.Writer
	pos  int64    // in the stream
	wait bool     // guarded by the store's mu
	hold *Hold    // that moves along; nil: none
	own  *os.File // a descriptor of its own, once the store has let go of its
	// placer is w where it is told of times; nil: it is not.
	placer Placer
	until  time.Time // zero: it reads on
	clock  clock
}

func newReader(s *Store, w io.Writer, from int64, wait bool) *reader {
	r := &reader{s: s, w: w, pos: from, wait: wait}
	r.placer, _ = w.(Placer)
	return r
}

func (r *reader) follow(ctx context.Context) error {
	defer r.close()
	stop := r.stop()
	skipped := false
	for {
		p, err := r.next(ctx, stop)
		switch {
		case err != nil:
			return err
		case p.end && skipped:
			return r.s.Lost()
		case p.end:
			return nil
		case p.skip > 0:
			skipped = true
			err = r.skip(p.skip)
		default:
			err = r.copy(p.span)
		}
		switch {
		case errors.Is(err, errUntil):
			return nil
		case err != nil:
			return err
		}
	}
}

// stop is where a reader ends that does not wait.
func (r *reader) stop() int64 {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.wait {
		return math.MaxInt64
	}
	return r.s.total
}

// errUntil is that what comes next came too late.
var errUntil = errors.New("past the time that was asked for")

// piece is what a reader gets next: bytes, or how many are skipped, or the end. The
// empty piece is to wait.
type piece struct {
	span
	skip int64
	end  bool
}

// next returns what comes next, when there is something.
func (r *reader) next(ctx context.Context, stop int64) (p piece, err error) {
	if ctx.Err() != nil {
		return piece{}, context.Cause(ctx)
	}
	closed := false
	err = r.s.await(ctx, func() bool {
		p, closed = r.plan(stop), r.s.closed
		return closed || p != piece{}
	})
	if closed && !p.end && p.skip == 0 {
		return piece{}, sbxerr.Wrap(sbxerr.State, "output.follow", errClosed)
	}
	return p, err
}

// plan says what comes next; the store's mu is held.
func (r *reader) plan(stop int64) piece {
	s := r.s
	total, kept, out := min(s.total, stop), min(s.kept, stop), s.leftOut()
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
	pool := largeBuffers
	if at.size() <= smallBuffer {
		pool = smallBuffers
	}
	b := pool.Get().(*[]byte)
	defer pool.Put(b)
	buf := (*b)[:min(int64(len(*b)), at.size())]
	n, err := r.read(buf)
	if err != nil || n == 0 {
		return err
	}
	for left := buf[:n]; len(left) > 0; {
		part, err := r.place(left)
		if err != nil {
			return err
		}
		if _, err := r.w.Write(part); err != nil {
			return err
		}
		r.move(int64(len(part)))
		left = left[len(part):]
	}
	return nil
}

// place tells the writer of the time of what comes next, and returns as much of p as
// came then.
func (r *reader) place(p []byte) ([]byte, error) {
	if r.placer == nil && r.until.IsZero() {
		return p, nil
	}
	came, to, news := r.clock.at(r.s, r.pos)
	if !r.until.IsZero() && came.After(r.until) {
		return nil, errUntil
	}
	if news && r.placer != nil {
		if err := r.placer.Place(r.pos, came); err != nil {
			return nil, err
		}
	}
	return p[:min(int64(len(p)), to-r.pos)], nil
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
		r.s.change(func() { r.hold.at = r.pos })
	}
}

// read fills buf, or the beginning of it, with the next bytes. It returns how many are
// those of the stream still.
func (r *reader) read(buf []byte) (n int, err error) {
	s := r.s
	f, most, err := r.file()
	if err != nil {
		return 0, err
	}
	buf = buf[:min(int64(len(buf)), most)]
	n, err = f.ReadAt(buf, r.pos) // the file keeps its descriptor while it is read
	switch {
	case n == len(buf):
	case errors.Is(err, os.ErrClosed): // the store has let go of it, or was closed
		return 0, nil
	default:
		return 0, sbxerr.Wrap(sbxerr.StateDir, "output.follow", fmt.Errorf("read %d bytes of %q at %d: %w", len(buf), f.Name(), r.pos, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leftOut().within(span{r.pos, r.pos + int64(n)}).size() > 0 {
		return 0, nil
	}
	return n, nil
}

// file returns the file that has the next byte, or the reader's own where the stream is
// finished, and how many bytes it may have from there.
func (r *reader) file() (f *os.File, most int64, err error) {
	const op = "output.follow"
	s := r.s
	s.mu.Lock()
	closed, p, most := s.closed, s.parts[0], int64(math.MaxInt64)
	for _, later := range s.parts[1:] {
		if r.pos >= later.from {
			p = later
		} else {
			most = later.from - r.pos
		}
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, 0, sbxerr.Wrap(sbxerr.State, op, errClosed)
	case p.file != nil:
		return p.file, most, nil
	case r.own == nil || r.own.Name() != p.path:
		r.close()
		if r.own, err = owndir.Open(p.path); err != nil {
			return nil, 0, sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
	}
	return r.own, most, nil
}

func (r *reader) close() {
	if r.own != nil {
		_ = r.own.Close() // it was only read
	}
	r.own = nil
}
