package output

import (
	"errors"
	"io/fs"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/sbxerr"
)

// spareLimit is what a store keeps at most in its spare file, in bytes.
const spareLimit = 256 << 10

// errSpare is why bytes are lost that had no room in spare files either.
var errSpare = errors.New("the disk is full, and so is what is kept in memory instead")

// Spare names a file for a store whose own file cannot take its first byte, on
// another file system: of a full disk at least the ends of new commands are kept.
// It holds less, and counts in room in the place of the other one. Where only this
// file is there, an earlier process had need of it.
func (s *Store) Spare(path string, room *Room) error {
	s.work.Lock()
	defer s.work.Unlock()
	s.spare, s.spareRoom = path, room
	if s.state().file != nil {
		return nil
	}
	f, err := openKept(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		s.useSpare()
		if err = s.adopt(f); err != nil {
			err = errors.Join(err, f.Close())
		}
		s.occupy()
	}
	return sbxerr.Wrap(sbxerr.StateDir, "output.spare", err)
}

// turn goes on with the spare file after an error of the store's own one, of which
// nothing is kept. It reports whether there is one. The caller holds work.
func (s *Store) turn(failed error) bool {
	st := s.state()
	if s.spare == "" || st.kept > 0 || st.lost || !Full(failed) {
		return false
	}
	if st.file != nil {
		s.change(func() { s.file = nil })
		if err := errors.Join(st.file.Close(), owndir.Unlink(s.path)); err != nil {
			return false // a later process would open it, and not the other
		}
	}
	s.useSpare()
	return true
}

func (s *Store) useSpare() {
	b, _ := newBound(min(s.bound.limit(), spareLimit)) // which is valid, as s.bound is
	s.change(func() { s.path, s.bound, s.spared = s.spare, b, true })
	s.spare, s.room = "", s.spareRoom
}
