package output

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// page is what holes are aligned to, in bytes.
	page = 4096
	// minStep and maxStep bound the slack on the disk past the limit, in bytes.
	minStep, maxStep = 1 << 20, 64 << 20
)

// span is the bytes from and up to, but not with, an offset.
type span struct{ from, to int64 }

func (s span) size() int64 { return max(0, s.to-s.from) }

// and returns the span from the first to the last byte of both.
func (s span) and(o span) span {
	switch {
	case s.size() == 0:
		return o
	case o.size() == 0:
		return s
	}
	return span{min(s.from, o.from), max(s.to, o.to)}
}

func (s span) within(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

func up(n int64) int64   { return (n + page - 1) &^ (page - 1) }
func down(n int64) int64 { return n &^ (page - 1) }

// bound says how much stays of a stream: the first head bytes and the last tail ones.
type bound struct{ head, tail int64 }

func newBound(limit int64) (bound, error) {
	if limit < 2 {
		return bound{}, fmt.Errorf("an output limit of %d bytes is too small, give at least 2", limit)
	}
	return halves(limit), nil
}

func halves(limit int64) bound { return bound{head: limit - limit/2, tail: limit / 2} }

// step is how far the file may exceed the limit on the disk, in bytes.
func (b bound) step() int64 { return min(max((b.head+b.tail)/8, minStep), maxStep) }

// middle is what is left out of n bytes.
func (b bound) middle(n int64) span { return span{b.head, n - b.tail} }

// punch frees the blocks of whole pages of f. Its size stays.
func punch(f *os.File, h span) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, h.from, h.size())
		if err == nil || !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// findHole returns the first hole of f in a span; see SEEK_HOLE in lseek(2).
func findHole(f *os.File, in span) (span, error) {
	from, err := seek(f, in.from, unix.SEEK_HOLE, in.to)
	if err != nil || from >= in.to {
		return span{}, err
	}
	to, err := seek(f, from, unix.SEEK_DATA, in.to)
	return span{from, to}, err
}

func seek(f *os.File, from int64, whence int, end int64) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), from, whence)
	if errors.Is(err, unix.ENXIO) { // there is none up to the end
		return end, nil
	}
	return min(at, end), os.NewSyscallError("lseek", err)
}
