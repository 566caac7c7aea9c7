// Package output keeps what a command writes to one stream, within a bound:
// the first half of the bound and the last half of it, with the true total.
//
// The command's pipe is read as fast as it fills and never waits for a reader
// of the store. Readers follow at their own pace: up to the bound they see
// every byte as it comes; one that is overtaken, or a stream that passes the
// bound, gets an explicit mark where bytes are left out.
package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/caisson-run/caisson/sbxerr"
)

// Store is one stream of one command. It is a sparse file that is made at the
// first byte: the head at its start, and behind it a ring with the tail.
type Store struct {
	path       string
	head, tail int64 // capacities in bytes

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	file    *os.File
	total   int64 // bytes seen, also those left out
	done    bool
	lost    error // why bytes could not be kept
}

// New makes a store of at most limit bytes at path, which must not exist.
func New(path string, limit int64) (*Store, error) {
	if limit < 2 {
		return nil, sbxerr.New(sbxerr.Limits, "output.new", "an output limit of %d bytes is too small, give at least 2", limit)
	}
	return &Store{path: path, head: limit - limit/2, tail: limit / 2, changed: make(chan struct{})}, nil
}

// Write appends p. It never fails for a full disk: the total stays true and
// Lost says what happened, so that a command never waits for the host's disk.
func (s *Store) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, os.ErrClosed
	}
	if s.lost == nil {
		s.lost = s.keep(p)
	}
	s.total += int64(len(p))
	s.announce()
	return len(p), nil
}

func (s *Store) keep(p []byte) error {
	if s.file == nil && len(p) > 0 {
		f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return sbxerr.Wrap(sbxerr.StateDir, "output.write", err)
		}
		s.file = f
	}
	for pos := s.total; len(p) > 0; {
		offset, room := s.place(pos)
		n, err := s.file.WriteAt(p[:min(int64(len(p)), room)], offset)
		if err != nil {
			return sbxerr.Wrap(sbxerr.StateDir, "output.write", err)
		}
		p, pos = p[n:], pos+int64(n)
	}
	return nil
}

// place returns where the byte of stream position pos is kept, and how many
// bytes from there on lie side by side.
func (s *Store) place(pos int64) (offset, room int64) {
	if pos < s.head {
		return pos, s.head - pos
	}
	at := (pos - s.head) % s.tail
	return s.head + at, s.tail - at
}

func (s *Store) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Finish says that nothing more will come. Readers then end.
func (s *Store) Finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.done = true
		s.announce()
	}
}

// Close releases the file. Readers that are under way end with an error.
func (s *Store) Close() error {
	s.Finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file, s.lost = nil, os.ErrClosed
	return err
}

// Total returns the bytes seen so far and whether some of them are left out.
func (s *Store) Total() (n int64, truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.total > s.head+s.tail || (s.lost != nil && s.total > 0)
}

// Lost returns why bytes could not be kept, or nil.
func (s *Store) Lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Follow copies the stream to w until it is finished or ctx ends: every byte
// up to the bound as it comes, then, if the stream passed the bound, a mark
// and its last bytes. Without wait it copies what there is now.
func (s *Store) Follow(ctx context.Context, w io.Writer, wait bool) error {
	buf := make([]byte, 64<<10)
	for pos := int64(0); ; {
		n, next, err := s.read(ctx, buf, pos, wait)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if skipped := next - pos - int64(n); skipped > 0 {
			if _, err := io.WriteString(w, Mark(skipped)); err != nil {
				return err
			}
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		pos = next
	}
}

// Mark is what stands in an output in the place of n bytes.
func Mark(n int64) string { return fmt.Sprintf("\n[caisson: %d bytes left out]\n", n) }

// read waits for bytes at pos, or past it where those are gone, and returns
// how many it read and the position behind them.
func (s *Store) read(ctx context.Context, buf []byte, pos int64, wait bool) (n int, next int64, err error) {
	for {
		s.mu.Lock()
		n, next, err := s.readLocked(buf, pos, s.done || !wait)
		changed := s.changed
		s.mu.Unlock()
		if n > 0 || err != nil {
			return n, next, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, pos, context.Cause(ctx)
		}
	}
}

// readLocked reads at pos. Past the bound it waits for the end (last), because
// only then it is known which bytes are the tail.
func (s *Store) readLocked(buf []byte, pos int64, last bool) (n int, next int64, err error) {
	limit := s.head + s.tail
	switch {
	case s.lost != nil:
		return 0, pos, s.lost
	case pos >= s.total && last:
		return 0, pos, io.EOF
	case pos >= s.total:
		return 0, pos, nil
	case pos < s.head: // always kept
	case s.total <= limit: // nothing is overwritten yet
	case !last:
		return 0, pos, nil
	default:
		pos = max(pos, s.total-s.tail)
	}
	end := s.total
	if pos < s.head {
		end = min(end, s.head)
	}
	offset, room := s.place(pos)
	n = int(min(int64(len(buf)), room, end-pos))
	if _, err := s.file.ReadAt(buf[:n], offset); err != nil {
		return 0, pos, sbxerr.Wrap(sbxerr.StateDir, "output.read", err)
	}
	return n, pos + int64(n), nil
}
