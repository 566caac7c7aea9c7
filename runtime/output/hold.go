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
	_, err := h.s.follow(ctx, &reader{s: h.s, w: w, pos: from, stop: -1, wait: wait, hold: h})
	return err
}

// Release lets go of the place. The bound holds for what was held.
func (h *Hold) Release() {
	s := h.s
	s.work.Lock()
	defer s.work.Unlock()
	held := true
	s.change(func() {
		_, held = s.holds[h]
		delete(s.holds, h)
	})
	if held && !s.isClosed() {
		s.cut()
		s.charge()
	}
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// move notes how far the reader is.
func (h *Hold) move(to int64) { h.s.change(func() { h.at = to }) }

// awaitPlace waits while the pipe was emptied a window ahead of a place.
func (s *Store) awaitPlace(ctx context.Context) error {
	for {
		s.mu.Lock()
		ahead := int64(0)
		for h := range s.holds {
			ahead = max(ahead, s.kept-h.at)
		}
		if ahead < window || s.broken || s.done || s.closed {
			s.mu.Unlock()
			return nil
		}
		changed := s.next()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
