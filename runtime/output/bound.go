package output

import "fmt"

const (
	// page is what holes are aligned to, in bytes. Where blocks are larger, the
	// kernel frees those that lie wholly in the hole.
	page = 4096
	// maxChunk is the most that one splice moves, in bytes.
	maxChunk = 256 << 10
	// usualPipe is what a pipe holds at first, widePipe what the pipe of
	// a command gets that writes much, in bytes; see F_SETPIPE_SZ in fcntl(2).
	usualPipe, widePipe = 64 << 10, 256 << 10
	// minStep and maxStep bound the slack on the disk past the limit, in bytes.
	// A hole of half a step is punched in one call.
	minStep, maxStep = 1 << 20, 64 << 20
)

// bound says which bytes of a stream are kept: the first head bytes and the
// last tail ones.
type bound struct{ head, tail int64 }

func newBound(limit int64) (bound, error) {
	if limit < 2 {
		return bound{}, fmt.Errorf("an output limit of %d bytes is too small, give at least 2", limit)
	}
	return bound{head: limit - limit/2, tail: limit / 2}, nil
}

func (b bound) limit() int64 { return b.head + b.tail }

// step is how far the file may exceed the limit on the disk, in bytes.
func (b bound) step() int64 { return min(max(b.limit()/8, minStep), maxStep) }

// span is the bytes from and up to, but not with, an offset.
type span struct{ from, to int64 }

// holesFrom is where the first hole begins.
func (b bound) holesFrom() int64 { return (b.head + page - 1) &^ (page - 1) }

// hole returns what to punch when kept bytes are in the file and all up to gone
// is punched, or !ok where it is not worth a call yet. Now makes every page
// worth one.
func (b bound) hole(gone, kept int64, now bool) (_ span, ok bool) {
	h := span{max(gone, b.holesFrom()), (kept - b.tail) &^ (page - 1)}
	least := b.step() / 2
	if now {
		least = page
	}
	return h, h.to-h.from >= least
}

// punched reports whether, with all up to gone punched, some of s may be.
func (b bound) punched(s span, gone int64) bool { return s.to > b.holesFrom() && s.from < gone }

// view is a stream as a reader finds it.
type view struct {
	total, kept int64
	last        bool // nothing comes after
}

// piece is what a reader gets next: first a mark for the skipped bytes, if
// any, then span.
type piece struct {
	skip int64
	span
	end bool // nothing comes after
}

// next returns what a reader gets that has had everything up to pos. The empty
// piece is to wait. Past the limit that is until the end, because only then it
// is known which bytes are the tail.
func (b bound) next(pos int64, v view) piece {
	switch {
	case v.kept <= b.limit() && pos < v.kept:
		return piece{span: span{pos, v.kept}}
	case pos < min(b.head, v.kept):
		return piece{span: span{pos, b.head}}
	case !v.last:
		return piece{}
	case pos < v.kept:
		from := max(pos, v.kept-b.tail)
		return piece{skip: from - pos, span: span{from, v.kept}}
	}
	return piece{skip: max(0, v.total-pos), end: true} // more than 0 only where bytes were lost
}

// upTo cuts p, which a reader at pos gets, where the stream is to end for it.
func (p piece) upTo(stop, pos int64) piece {
	if p.end || p.to <= stop {
		return p
	}
	p.skip = min(p.skip, max(0, stop-pos))
	p.span = span{min(p.from, stop), stop}
	p.end = p.from == stop
	return p
}

// empty reports whether there is nothing to do for p but to wait.
func (p piece) empty() bool { return !p.end && p.skip == 0 && p.from == p.to }

// Mark is what stands in an output in the place of n bytes.
func Mark(n int64) string { return fmt.Sprintf("\n[caisson: %d bytes left out]\n", n) }
