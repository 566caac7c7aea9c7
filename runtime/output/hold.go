package output

import (
	"context"
	"io"
)

// window is how far the pipe is emptied ahead of the slowest place that is held, in
// bytes.
const window = 1 << 20

// Hold is the place of a reader that gets every byte.
type Hold struct {
	s  *Store
	at int64 // guarded by the store's mu
}

// Hold holds the place at an offset, or at the first byte after it that is not left
// out by now. The command waits for whoever holds a place: it must be released.
func (s *Store) Hold(from int64) *Hold {
	h := &Hold{s: s, at: from}
	s.change(func() { s.holds[h] = struct{}{} })
	return h
}

// HoldAll holds the place at the first byte that the readers of an earlier daemon may
// not have had.
func (s *Store) HoldAll() *Hold {
	s.mu.Lock()
	at := s.hole.to
	s.mu.Unlock()
	return s.Hold(at)
}

// Follow copies the stream to w from the place on, which moves along, as
// [Store.Follow] does.
func (h *Hold) Follow(ctx context.Context, w io.Writer, wait bool) error {
	h.s.mu.Lock()
	from := h.at
	h.s.mu.Unlock()
	r := newReader(h.s, w, from, wait)
	r.hold = h
	return r.follow(ctx)
}

// Release lets go of the place. The bound holds for what was held.
func (h *Hold) Release() {
	h.s.work.Lock()
	defer h.s.work.Unlock()
	h.s.change(func() { delete(h.s.holds, h) })
	h.s.fit()
}

// hasPlace reports whether the pipe may be emptied further; mu is held.
func (s *Store) hasPlace() bool {
	for h := range s.holds {
		if s.kept-h.at >= window {
			return s.broken || s.done || s.closed
		}
	}
	return true
}
