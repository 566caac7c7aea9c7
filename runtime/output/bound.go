package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// spareHalf is what a spare file keeps of the beginning and of the end, in bytes.
const spareHalf = 128 << 10

// Full reports whether err is that of a disk without room: no space, no inodes or no
// quota left. It says nothing about what the file system can do.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Why more is left out of a stream than its limit says.
var (
	errDropped = sbxerr.WithRemedy(sbxerr.Limits, "output.drop", whyError("the output was dropped, as that of later commands took its place"),
		"read output before so much of later commands is kept, write it to a file in the sandbox, or raise sandboxes.kept_output")
	errFull = sbxerr.WithRemedy(sbxerr.Limits, "output.keep", whyError("the commands that run in the sandbox have written more than is kept of all of them together"),
		"write to a file in the sandbox, run fewer of them at once, or raise sandboxes.kept_output")
	errSpare = whyError("the daemon's disk is full, and of such output little is kept elsewhere")
)

type whyError string

func (e whyError) Error() string { return string(e) }

// leftOut is what readers do not get: the hole, and of a finished stream exactly what
// is past its limit. mu is held.
func (s *Store) leftOut() span {
	if !s.done {
		return s.hole
	}
	return s.hole.and(s.middle(s.kept))
}

// middle is what the bound leaves out of the first n bytes, up to the first place that
// is held. mu is held.
func (s *Store) middle(n int64) span {
	m := s.bound.middle(n)
	for h := range s.holds {
		m.to = min(m.to, h.at)
	}
	return m
}

// cut leaves out what is past the bound, where that is worth a call. Where blocks
// cannot be freed nothing more is kept. The caller holds work.
func (s *Store) cut() {
	s.mu.Lock()
	old, least := s.hole, s.bound.step()/2
	m := s.middle(s.kept)
	m.from, m.to = up(m.from), down(m.to)
	if s.done {
		least = 1
		if s.bound.tail == 0 && m.to == down(s.kept) {
			m.to = s.kept
		}
	}
	hole := old.and(m)
	if m.size() == 0 || hole.size()-old.size() < least {
		s.mu.Unlock()
		return
	}
	s.hole = hole // readers look at it after they read: none takes zeros for bytes of the stream
	s.mu.Unlock()
	parts := []span{hole}
	if old.size() > 0 {
		parts = []span{{hole.from, old.from}, {old.to, hole.to}}
	}
	for _, part := range parts {
		if err := s.free(part); err != nil {
			s.lose(err)
		}
	}
}

// free frees the blocks of a part of the stream. The caller holds work.
func (s *Store) free(part span) error {
	s.mu.Lock()
	own, spare, split := s.own, s.spare, s.split
	s.mu.Unlock()
	if split < 0 {
		return freeIn(own, s.o.Path, part)
	}
	return errors.Join(
		freeIn(own, s.o.Path, part.within(span{0, split})),
		freeIn(spare, s.o.Spare, part.within(span{down(split), part.to})))
}

// freeIn frees blocks of a file, which it opens where the store has let go of it.
func freeIn(f *os.File, path string, part span) error {
	if part.size() == 0 {
		return nil
	}
	part.to = up(part.to)
	if f == nil {
		var err error
		if f, err = openFile(path, unix.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
			if errors.Is(err, fs.ErrNotExist) { // no byte of it could be kept
				return nil
			}
			return err
		}
		defer f.Close()
	}
	return punch(f, part)
}

// Drop frees what is kept of a finished stream, but for what a reader holds. Its total
// stays known, also to a later daemon.
func (s *Store) Drop() {
	s.work.Lock()
	defer s.work.Unlock()
	if s.narrow(bound{}, errDropped) {
		s.cut()
	}
	s.charge()
}

// narrow has less of the stream stay, for a reason.
func (s *Store) narrow(b bound, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total == 0 && s.done { // its readers miss nothing
		return false
	}
	s.bound = bound{min(s.bound.head, b.head), min(s.bound.tail, b.tail)}
	if s.why == nil {
		s.why = why
	}
	return true
}

// turn goes on in the spare file after an error of the store's own one. It reports
// whether it can. The caller holds work.
func (s *Store) turn(failed error) bool {
	s.mu.Lock()
	able := s.o.Spare != "" && s.split < 0 && Full(failed)
	s.mu.Unlock()
	if !able {
		return false
	}
	f, err := openFile(s.o.Spare, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, modeWhole)
	if err != nil {
		return false
	}
	s.release()
	s.change(func() {
		s.spare, s.split = f, s.kept
		s.spareLocked()
	})
	return true
}

// spareLocked bounds what the spare file keeps.
func (s *Store) spareLocked() {
	s.bound = bound{min(s.bound.head, max(s.split, spareHalf)), min(s.bound.tail, spareHalf)}
	s.why = errSpare
}

// lose gives up keeping: what comes from now on is only counted.
func (s *Store) lose(err error) {
	if sbxerr.Of(err) == sbxerr.Unknown {
		err = sbxerr.Wrap(sbxerr.StateDir, "output.keep", fmt.Errorf("keep output in %q: %w", s.o.Path, err))
	}
	var f *os.File
	s.change(func() {
		s.broken, s.why = true, err
		f = s.own
		if s.spare != nil {
			f = s.spare
		}
	})
	if f != nil {
		_ = f.Chmod(modeLost) // for a daemon after this one; on a file system that went read-only there is none to tell
	}
}
