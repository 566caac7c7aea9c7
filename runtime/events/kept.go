package events

import (
	"cmp"
	"slices"
)

// The bounds of what is kept for readers. Each event takes its bytes of JSON, or minCost if
// that is more, out of maxBytes.
const (
	maxKept  = 16384
	maxBytes = 16 << 20
	minCost  = maxBytes / maxKept
)

// rootBytes is the part of maxBytes that no user's events take from those of root and of
// the host.
const rootBytes = maxBytes / 4

// owner is whose events share the room.
type owner struct {
	host bool // about the host, not about a user's sandbox
	uid  uint32
}

func ownerOf(s Scope) owner {
	if s.Host {
		return owner{host: true}
	}
	return owner{uid: s.Owner}
}

// place is where an event is, or was.
type place struct {
	number uint64 // in the stream: 1 for the first event of the bus
	nth    uint64 // among the events of its owner: 1 for the first
	owner  owner
	event  *Event // nil: dropped
}

func (p *place) cost() int { return max(p.event.size, minCost) }

// kept holds the newest events. If there is no room, the owner with the most loses its
// oldest event: a caller that makes many events drops nobody else's.
// It needs the lock of its bus.
type kept struct {
	list   []*place // by number
	holes  int      // in list
	cost   int
	shares map[owner]*share
	newest uint64 // number of the newest event that was dropped
}

// share is what one owner has of the room.
type share struct {
	list   []*place // by number, without holes
	cost   int
	total  uint64 // events so far
	newest uint64 // number of the newest event that was dropped
}

func (k *kept) add(number uint64, e *Event) {
	o := ownerOf(e.Scope)
	s := k.shares[o]
	if s == nil {
		s = &share{}
		k.shares[o] = s
	}
	s.total++
	p := &place{number: number, nth: s.total, owner: o, event: e}
	k.list, s.list = append(k.list, p), append(s.list, p)
	k.cost += p.cost()
	s.cost += p.cost()
	for k.cost > maxBytes {
		k.drop(k.largest())
	}
}

// largest returns the share that has to give an event.
func (k *kept) largest() (largest *share) {
	most := -1
	for o, s := range k.shares {
		cost := s.cost
		if (o.host || o.uid == 0) && cost <= rootBytes {
			cost = 0
		}
		if cost > most && len(s.list) > 0 {
			most, largest = cost, s
		}
	}
	return largest
}

func (k *kept) drop(s *share) {
	p := s.list[0]
	s.list[0] = nil
	s.list = s.list[1:]
	s.cost -= p.cost()
	k.cost -= p.cost()
	s.newest, k.newest = p.number, max(k.newest, p.number)
	p.event = nil
	k.holes++
	for len(k.list) > 0 && k.list[0].event == nil {
		k.list[0] = nil
		k.list = k.list[1:]
		k.holes--
	}
	if k.holes > maxKept/8 { // not at each event: it goes through all
		k.list = slices.DeleteFunc(k.list, func(p *place) bool { return p.event == nil })
		k.holes = 0
	}
}

// from returns the places from number on. Some may be holes.
func (k *kept) from(number uint64) []*place {
	i, _ := slices.BinarySearchFunc(k.list, number, func(p *place, n uint64) int { return cmp.Compare(p.number, n) })
	return k.list[i:]
}
