// Package limits bounds the connections and lookups of all sandboxes by the descriptors
// of this process.
//
// The bound comes from the hard limit that the process was started with. Connections get
// four fifths of it and lookups a twentieth, at two descriptors each. The rest is for the
// fixed descriptors of each sandbox. So neither uses up the part of the other.
//
// All sandboxes share a [Limiter]. Its last tenth is reserved for sandboxes that hold few
// slots: there a [Share] gets at most a quarter of the free slots. So a slot is left
// whatever other sandboxes hold.
package limits

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Limiter has a number of slots. A slot stands for two descriptors.
type Limiter struct {
	most  int64
	taken atomic.Int64
}

const (
	reservedPart = 10 // one in so many slots is reserved for shares that hold few
	sharePart    = 4  // one in so many free slots is few
)

// mostDescriptors bounds the descriptors that are counted on.
const mostDescriptors = 1 << 20

// mostLookups bounds the slots for lookups. Each lookup takes two UDP ports of the host,
// which usually has 28,000 for all its programs.
const mostLookups = 2048

// The limiters of this process. They read the limit before the process is confined.
var (
	Connections = New(descriptors() / 5 * 4 / 2)
	Lookups     = New(min(descriptors()/20/2, mostLookups))
)

// descriptors returns the hard limit of this process, or 0 if it is unknown. Then nothing
// is carried.
func descriptors() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int64(min(l.Max, mostDescriptors))
}

// New makes a Limiter with so many slots.
func New(most int64) *Limiter { return &Limiter{most: most} }

// Taken counts the slots in use.
func (l *Limiter) Taken() int64 { return l.taken.Load() }

// Share makes a Share that holds no slot.
func (l *Limiter) Share() *Share { return &Share{limiter: l} }

// Share holds the slots of one sandbox for one purpose.
type Share struct {
	limiter *Limiter
	held    atomic.Int64
}

// ErrFull says that no slot is free for the caller.
var ErrFull = errors.New("the gateway has too many at once, and the sandbox its part of them")

// Acquire takes a slot, or fails at once with ErrFull.
func (s *Share) Acquire() error {
	l := s.limiter
	for {
		taken := l.taken.Load()
		if free := l.most - taken - 1; free < 0 || free < l.most/reservedPart && free < s.held.Load()*sharePart {
			return ErrFull
		}
		if l.taken.CompareAndSwap(taken, taken+1) {
			s.held.Add(1)
			return nil
		}
	}
}

// Release returns a slot. Call it once for each successful Acquire.
func (s *Share) Release() {
	s.limiter.taken.Add(-1)
	s.held.Add(-1)
}
