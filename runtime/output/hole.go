package output

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// page is what holes are aligned to, in bytes.
const page = 4096

func up(n int64) int64   { return (n + page - 1) &^ (page - 1) }
func down(n int64) int64 { return n &^ (page - 1) }

// span is the bytes from and up to, but not with, an offset.
type span struct{ from, to int64 }

func (s span) size() int64 { return max(0, s.to-s.from) }

// and returns the span from the first to the last byte of both.
func (s span) and(o span) span {
	switch {
	case o.size() == 0:
		return s
	case s.size() == 0:
		return o
	}
	return span{min(s.from, o.from), max(s.to, o.to)}
}

func (s span) within(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

// punch frees the blocks of whole pages of f. Its size stays, and so does the time at
// which the last byte was written.
func punch(f *os.File, h span) error {
	if st, err := f.Stat(); err == nil {
		defer func() { keepModified(f, st.ModTime()) }()
	}
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, h.from, h.size())
	}
	if err != nil {
		return fmt.Errorf("punch a hole: %w", err)
	}
	return nil
}

// keepModified sets the time at which f was modified. Without it that is later: what came
// last has no time then to a later daemon.
func keepModified(f *os.File, to time.Time) {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(to.UnixNano())}
	_ = unix.UtimesNanoAt(int(f.Fd()), "", times, unix.AT_EMPTY_PATH)
}

// findHole returns the first hole of f in a span; see SEEK_HOLE in lseek(2).
func findHole(f *os.File, in span) (hole span, err error) {
	fd := int(f.Fd())
	if hole.from, err = unix.Seek(fd, in.from, unix.SEEK_HOLE); err == nil {
		hole.to, err = unix.Seek(fd, hole.from, unix.SEEK_DATA)
	}
	if errors.Is(err, unix.ENXIO) { // there is none up to the end
		hole.to, err = in.to, nil
	}
	return hole.within(in), os.NewSyscallError("lseek", err)
}
