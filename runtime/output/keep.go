package output

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// Write appends p, for a source that is no pipe. It never fails for a full
// disk: the total stays true and Lost says what happened, so that a command
// never waits for the host's disk.
func (s *Store) Write(p []byte) (int, error) {
	s.work.Lock()
	defer s.work.Unlock()
	st := s.state()
	if st.done || st.closed {
		return 0, sbxerr.Wrap(sbxerr.State, "output.write", errClosed)
	}
	for rest := p; len(rest) > 0; {
		chunk := rest[:min(len(rest), maxChunk)]
		s.append(chunk)
		rest = rest[len(chunk):]
	}
	return len(p), nil
}

func (s *Store) append(p []byte) {
	st := s.state()
	f := s.keeper(st)
	if f == nil {
		s.count(len(p), 0)
		return
	}
	n, err := f.WriteAt(p, st.kept)
	if n == 0 && s.turn(err) {
		s.append(p)
		return
	}
	s.count(n, n)
	if err != nil {
		s.lose(err)
		s.count(len(p)-n, 0)
	}
	s.trim(false)
	s.occupy()
}

// state is what decides what to do with the next bytes.
type state struct {
	file         *os.File // to keep bytes in; nil when there is none, or none any more
	kept         int64
	gone         int64
	lost         bool
	done, closed bool
}

func (s *Store) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := state{file: s.file, kept: s.kept, gone: s.gone, lost: s.lost != nil, done: s.done, closed: s.closed}
	if st.lost {
		st.file = nil
	}
	return st
}

// keeper returns the file, which it makes for the first byte, or nil where
// nothing can be kept any more.
func (s *Store) keeper(st state) *os.File {
	if st.lost || st.file != nil {
		return st.file
	}
	f, err := openFile(s.path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, modeWhole)
	if err != nil && s.turn(err) {
		f, err = openFile(s.path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, modeWhole)
	}
	if err != nil {
		s.lose(err)
		return nil
	}
	s.change(func() { s.file = f })
	return f
}

// count adds to the totals.
func (s *Store) count(seen, kept int) {
	if seen == 0 {
		return
	}
	s.change(func() {
		s.total += int64(seen)
		s.kept += int64(kept)
	})
}

// lose gives up keeping: what comes from now on is only counted.
func (s *Store) lose(err error) {
	if !errors.Is(err, errFull) {
		err = sbxerr.Wrap(sbxerr.StateDir, "output.keep", fmt.Errorf("keep output in %q: %w", s.path, err))
	}
	var f *os.File
	var mode os.FileMode = modeLost
	s.change(func() {
		f = s.file
		if s.lost == nil {
			s.lost = err
		}
		if s.lost == errFull {
			mode = modeFull
		}
	})
	if f != nil {
		_ = f.Chmod(mode) // for a daemon after this one; on a file system that went read-only there is none to tell
	}
}

// trim punches a hole where that is worth a call; now makes each page worth one.
// Where it cannot, the bound would not hold, so nothing more is kept.
func (s *Store) trim(now bool) {
	st := s.state()
	hole, ok := s.bound.hole(st.gone, st.kept, now)
	if !ok || st.lost || st.file == nil {
		return
	}
	if err := s.punch(hole); err != nil {
		s.lose(err)
	}
}

// punch frees the blocks of a hole. Readers are told first, so that none takes
// the zeros of a hole for bytes of the stream.
func (s *Store) punch(h span) error {
	s.mu.Lock()
	s.gone = h.to
	f := s.file
	s.mu.Unlock()
	return punch(f, h)
}

func punch(f *os.File, h span) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, h.from, h.to-h.from)
		if err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fallocate", err)
		}
	}
}
