package output

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
)

const (
	// resolution is how long bytes share one mark.
	resolution = 10 * time.Millisecond
	// mostMarks bounds the marks of one stream: their file takes at most 96 KiB.
	mostMarks = 4096
	// markSize is a mark in its file: three integers of 64 bits, little-endian.
	markSize = 24
)

// mark says that the bytes from an offset to the next mark came from first to last, give
// or take the resolution. Times are nanoseconds since 1970. last is later than first
// only where marks were merged.
type mark struct{ offset, first, last int64 }

// times are the marks of one stream, in order.
type times struct {
	marks []mark
	lost  int64 // no time is known from this offset on
}

// at returns when the byte at an offset came, zero where that is not known, and the
// offset up to which that holds.
func (t times) at(offset int64) (came time.Time, to int64) {
	next, found := slices.BinarySearchFunc(t.marks, offset, func(m mark, offset int64) int { return int(min(max(m.offset-offset, -1), 1)) })
	if found {
		next++
	}
	to = t.lost
	if next < len(t.marks) {
		to = min(to, t.marks[next].offset)
	}
	switch {
	case offset >= t.lost:
		return time.Time{}, math.MaxInt64
	case next == 0:
		return time.Time{}, to
	}
	return time.Unix(0, t.marks[next-1].first), to
}

// since returns the offset of the first byte that may have come at a time or later, or
// end. A byte of which no time is known may have.
func (t times) since(from time.Time, end int64) int64 {
	for _, m := range t.marks {
		if !time.Unix(0, m.last).Add(resolution).Before(from) {
			end = m.offset
			break
		}
	}
	return min(end, t.lost)
}

// thin returns at most three quarters of the marks that a stream may have. Marks of
// bytes that are left out go first. The newest quarter stays as it is; of the older ones
// those are merged that are next to each other in time.
func thin(marks []mark, out span) []mark {
	var kept []mark
	for i, m := range marks {
		if i+1 == len(marks) || m.offset < out.from || marks[i+1].offset > out.to {
			kept = append(kept, m)
		}
	}
	older := max(0, len(kept)-mostMarks/4)
	for gap := 2 * resolution; len(kept) > mostMarks*3/4; gap *= 2 {
		merged := merge(kept[:older], gap)
		kept = append(merged, kept[older:]...)
		older = len(merged)
	}
	return kept
}

// merge joins marks that together are shorter than gap.
func merge(marks []mark, gap time.Duration) []mark {
	var merged []mark
	for _, m := range marks {
		if n := len(merged); n > 0 && m.last-merged[n-1].first < int64(gap) {
			merged[n-1].last = m.last
		} else {
			merged = append(merged, m)
		}
	}
	return merged
}

func appendMark(b []byte, m mark) []byte {
	for _, n := range []int64{m.offset, m.first, m.last} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

var errMarks = errors.New("the times of the output are not in order")

// parseMarks reads the file of marks. A last one that is not whole is none.
func parseMarks(data []byte) ([]mark, error) {
	var marks []mark
	last := mark{offset: -1}
	for record := range slices.Chunk(data[:len(data)/markSize*markSize], markSize) {
		m := mark{
			int64(binary.LittleEndian.Uint64(record)), int64(binary.LittleEndian.Uint64(record[8:])), int64(binary.LittleEndian.Uint64(record[16:])),
		}
		if m.offset <= last.offset || m.first < last.last || m.last < m.first {
			return nil, errMarks
		}
		marks, last = append(marks, m), m
	}
	return marks, nil
}
