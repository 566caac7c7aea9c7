package output

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/owndir"
)

// A file of marks beside the output keeps its times for a later daemon. It is made with
// the second mark: the first says no more than the birth of the output's own file. A later
// daemon compares the last mark with the time at which the output was last written, and
// so finds bytes without a mark. Nothing here fails: a disk that takes no marks costs
// times, and never a byte.

const (
	timesSuffix    = ".times"
	timesNewSuffix = ".times.new" // until it takes the place of the other
	// brief is how long after its last mark a stream may have been written to when its
	// daemon was killed: a mark is made after its bytes. After a longer time marks were lost.
	brief = time.Second
)

// stamps are the times of a store, but for the marks in the file. They change with work
// and mu held.
type stamps struct {
	known bool  // those of an earlier process are read
	last  mark  // changes is 0 before the first one
	saved int   // marks in the file; 0: the last is the only one
	lost  int64 // no time is known from this offset on
	// changes counts the changes, and one that is more than a new last mark twice.
	changes int
}

// size is what the file takes, in bytes.
func (t stamps) size() int64 { return int64(t.saved) * markSize }

// savedMarks is how many marks the file of an earlier process has.
func savedMarks(path string) int {
	fi, err := os.Lstat(path + timesSuffix)
	if err != nil {
		return 0
	}
	return int(min(fi.Size(), mostMarks*markSize) / markSize)
}

// forgetTimes frees what the times take. The caller holds work.
func (s *Store) forgetTimes() {
	_ = owndir.Unlink(s.o.Path + timesSuffix) // Remove tries again
	s.mu.Lock()
	s.stamps = stamps{known: true, changes: s.stamps.changes + 2}
	s.mu.Unlock()
}

// stamp notes that the bytes at an offset came now. They are in the file, and no reader
// has had them. The caller holds work.
func (s *Store) stamp(at int64) {
	now, t := time.Now().UnixNano(), s.stamps
	switch {
	case t.lost != math.MaxInt64:
		return
	case t.changes == 0:
	case now-t.last.first < int64(resolution): // also where the clock went back
		return
	default:
		if err := s.save(&t, mark{at, now, now}); err != nil {
			t.lost = at
			t.changes++ // two, with the next line
		}
	}
	t.changes++
	if t.lost == math.MaxInt64 {
		t.last = mark{at, now, now}
	}
	s.mu.Lock()
	s.stamps = t
	s.mu.Unlock()
}

// save adds a mark to the file, which it makes for the second one.
func (s *Store) save(t *stamps, m mark) error {
	path := s.o.Path + timesSuffix
	if t.saved >= mostMarks {
		n, err := s.rewrite(path)
		if err != nil {
			return err
		}
		t.saved = n
		t.changes++
	}
	n, flags := t.saved-1, 0
	if t.saved == 0 {
		n, flags = 0, unix.O_CREAT|unix.O_TRUNC
	}
	if err := writeMarks(path, n, flags, t.last, m); err != nil { // the last one may be longer by now
		return err
	}
	t.saved = n + 2
	return nil
}

// rewrite makes the file anew with fewer marks, and returns how many.
func (s *Store) rewrite(path string) (int, error) {
	marks, err := readMarks(path)
	if err != nil {
		return 0, err
	}
	marks = thin(marks, s.hole) // which work guards, too
	anew := s.o.Path + timesNewSuffix
	if err := writeMarks(anew, 0, unix.O_CREAT|unix.O_TRUNC, marks...); err != nil {
		return 0, err
	}
	return len(marks), owndir.Rename(anew, filepath.Base(path))
}

// writeMarks writes marks behind the first n of a file.
func writeMarks(path string, n, flags int, marks ...mark) error {
	var data []byte
	for _, m := range marks {
		data = appendMark(data, m)
	}
	f, err := os.OpenFile(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|flags, modeWhole)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, int64(n)*markSize)
	return errors.Join(err, f.Close())
}

func readMarks(path string) ([]mark, error) {
	data, err := owndir.ReadFile(path, (mostMarks+1)*markSize)
	if err != nil {
		return nil, err
	}
	return parseMarks(data)
}

// recall reads what an earlier process left of the times, once and before more comes.
// The caller holds work.
func (s *Store) recall() {
	if s.stamps.known {
		return
	}
	t := stamps{known: true, lost: math.MaxInt64}
	if s.kept > 0 {
		t.changes = 2
		marks, err := readMarks(s.o.Path + timesSuffix)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			t.saved = len(marks)
			t.last, t.lost = lastMark(marks, s.parts)
		} else {
			t.lost = 0
		}
	}
	s.mu.Lock()
	s.stamps = t
	s.mu.Unlock()
}

// lastMark returns the last of the marks, or what the files of the output say where
// there is none, and the offset from which on no time is known.
func lastMark(marks []mark, parts []part) (last mark, lost int64) {
	ok := true
	if len(marks) > 0 {
		last = marks[len(marks)-1]
	} else {
		last.first, ok = birth(parts[0].path)
		last.last = last.first
	}
	written, found := modified(parts[len(parts)-1].path)
	switch {
	case !ok || !found || written > last.last+int64(brief):
		return last, last.offset
	case written > last.last+int64(resolution):
		last.last = written
	}
	return last, math.MaxInt64
}

// Since returns the offset of the first byte that may have come at a time or later. It
// is the end of the stream where there is none yet. A byte of which no time is known may
// have.
func (s *Store) Since(from time.Time) int64 {
	s.mu.Lock()
	end := s.kept // before the marks are read: each byte up to there has one
	s.mu.Unlock()
	return s.times(s.stamped()).since(from, end)
}

// stamped returns the stamps, those of an earlier process too.
func (s *Store) stamped() stamps {
	s.mu.Lock()
	t := s.stamps
	s.mu.Unlock()
	if t.known {
		return t
	}
	s.work.Lock()
	defer s.work.Unlock()
	s.recall()
	return s.stamps
}

// times reads the marks. None is missing that t counts.
func (s *Store) times(t stamps) times {
	switch {
	case t.changes == 0 || t.lost == 0:
		return times{lost: t.lost}
	case t.saved == 0:
		return times{[]mark{t.last}, t.lost}
	}
	marks, err := readMarks(s.o.Path + timesSuffix)
	if err != nil || len(marks) == 0 {
		return times{}
	}
	if n := t.saved; len(marks) >= n && marks[n-1].offset == t.last.offset { // else they were thinned since, as the next change tells
		marks = marks[:n]
		marks[n-1] = t.last
	}
	return times{marks, t.lost}
}

// clock is one reader's view of the times.
type clock struct {
	times
	seen   stamps
	told   time.Time
	placed bool
}

// at returns when the byte at an offset came, which the store has, up to where that
// holds, and whether it is another time than before.
func (c *clock) at(s *Store, offset int64) (came time.Time, to int64, news bool) {
	switch now := s.stamped(); {
	case now.changes == c.seen.changes && now.known == c.seen.known:
	case now.changes == c.seen.changes+1 && c.seen.changes > 0:
		c.marks, c.seen = append(c.marks, now.last), now
	default:
		c.times, c.seen = s.times(now), now
	}
	came, to = c.times.at(offset)
	news = !c.placed || !came.Equal(c.told)
	c.told, c.placed = came, true
	return came, to, news
}

// modified returns when the output at path was last written, which a hole does not
// change, and birth when the file was made.
func modified(path string) (ns int64, ok bool) {
	st, err := statx(path, unix.STATX_MTIME)
	return st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), err == nil
}

func birth(path string) (ns int64, ok bool) {
	st, err := statx(path, unix.STATX_BTIME)
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec), err == nil && st.Mask&unix.STATX_BTIME != 0
}

func statx(path string, mask int) (st unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, mask, &st)
	return st, err
}
