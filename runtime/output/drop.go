package output

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// modeDropped is the mode of a file whose bytes were dropped: it is one hole, and
// its size is the total still.
const modeDropped = 0o200

// errDropped is what the bytes are lost for that Drop frees.
var errDropped = sbxerr.WithRemedy(sbxerr.Limits, "output.drop", droppedError{},
	"read output before so much of later commands is kept, write it to a file in the sandbox, or raise sandboxes.kept_output")

type droppedError struct{}

func (droppedError) Error() string {
	return "the output was dropped, as that of later commands took its place"
}

// Drop frees what is kept of a finished stream. Its total stays known, also to
// a later daemon. Readers get the mark for all that they have not had.
func (s *Store) Drop() error {
	s.work.Lock()
	defer s.work.Unlock()
	s.mu.Lock()
	total := s.total
	s.mu.Unlock()
	if total == 0 { // nothing was written: its readers miss nothing
		return nil
	}
	f, err := openFile(s.path, unix.O_RDWR|unix.O_NONBLOCK, 0)
	s.change(func() { s.kept, s.lost = 0, errDropped })
	s.occupy()
	if errors.Is(err, fs.ErrNotExist) { // no byte could be kept
		return nil
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "output.drop", err)
	}
	err = f.Chmod(modeDropped) // first: bytes that are gone must not be taken for zeros
	if err == nil {
		err = hollow(f, total)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "output.drop", errors.Join(err, f.Close()))
}

func hollow(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	return punch(f, span{0, size})
}

// Kept returns how many bytes of the stream can be read.
func (s *Store) Kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.kept, s.bound.limit())
}

// forgotten reports whether the bytes were dropped; mu is held.
func (s *Store) forgotten() bool { return s.lost == errDropped }
