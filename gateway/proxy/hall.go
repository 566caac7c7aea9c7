package proxy

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A connection takes two descriptors, of which this process may have few: no more is
// counted on than the hard limit that it was started with. So all rooms share a hall of as
// many connections as four fifths of that are enough for. The last tenth of the places is for
// rooms that have few: of it, a room that has a quarter of what is left gets no more. The
// fuller the hall, the less that is, so there is a place whatever others have.
type hall struct {
	most  int64
	taken atomic.Int64
}

const (
	lastPart = 10 // of the places, is for rooms with few
	roomPart = 4  // of what is free of that, is few
)

// everybody is the hall of this process, which once it is confined is told no limit.
var everybody = newHall()

func newHall() *hall {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return &hall{} // has no place: nothing is carried
	}
	return &hall{most: int64(min(l.Max, 1<<20) / 5 * 2)}
}

var errHallFull = errors.New("the gateway has too many connections, and the sandbox its part of them")

// enter takes a place for a room that has as many as held.
func (h *hall) enter(held int) error {
	if free := h.most - h.taken.Add(1); free < 0 || free < h.most/lastPart && free < int64(held)*roomPart {
		h.leave()
		return errHallFull
	}
	return nil
}

func (h *hall) leave() { h.taken.Add(-1) }
