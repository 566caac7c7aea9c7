// Package hall counts what takes descriptors of this process for sandboxes: no more of
// that begins than there are places.
//
// A process may have few descriptors: no more is counted on than the hard limit that it
// was started with. Connections have four fifths of that and lookups a twentieth, two
// for each place. The rest is for what each sandbox costs whatever it does. So neither
// takes what the other needs.
//
// All sandboxes share a Hall. The last tenth of its places is for those that have few:
// of it, a Room that has a quarter of what is left gets no more. The fuller the hall, the
// less that is, so there is a place whatever others have.
package hall

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Hall has places, each for two descriptors.
type Hall struct {
	most  int64
	taken atomic.Int64
}

const (
	lastPart = 10 // of the places, is for rooms with few
	roomPart = 4  // of what is free of that, is few
)

// mostDescriptors is how many are ever counted on.
const mostDescriptors = 1 << 20

// mostLookups bounds the places for lookups where there are descriptors enough: each lookup
// takes two UDP ports of the host, which usually has 28,000 for all its programs.
const mostLookups = 2048

// The halls of this process, which once it is confined is told no limit.
var (
	Connections = New(descriptors() / 5 * 4 / 2)
	Lookups     = New(min(descriptors()/20/2, mostLookups))
)

// descriptors is how many this process may have, 0 where that is not known: then nothing
// is carried.
func descriptors() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int64(min(l.Max, mostDescriptors))
}

// New makes a Hall with most places.
func New(most int64) *Hall { return &Hall{most: most} }

// Taken counts the places that are taken.
func (h *Hall) Taken() int64 { return h.taken.Load() }

// Room makes a Room that has no place yet.
func (h *Hall) Room() *Room { return &Room{hall: h} }

// Room is what one sandbox has of a Hall for one purpose.
type Room struct {
	hall *Hall
	held atomic.Int64
}

// ErrFull says that there is no place.
var ErrFull = errors.New("the gateway has too many at once, and the sandbox its part of them")

// Enter takes a place, or fails with ErrFull and has taken none meanwhile either.
func (r *Room) Enter() error {
	h := r.hall
	for {
		taken := h.taken.Load()
		if free := h.most - taken - 1; free < 0 || free < h.most/lastPart && free < r.held.Load()*roomPart {
			return ErrFull
		}
		if h.taken.CompareAndSwap(taken, taken+1) {
			r.held.Add(1)
			return nil
		}
	}
}

// Leave gives a place back, once for each Enter that did not fail.
func (r *Room) Leave() {
	r.hall.taken.Add(-1)
	r.held.Add(-1)
}
