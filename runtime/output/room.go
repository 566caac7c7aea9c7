package output

import "sync/atomic"

// Room is what several stores may have on the disk together while they are being
// filled. Each store's own limit is a promise to its command, which many commands may
// have at once; the room bounds what comes of all these promises. In a full room a
// store that has much gives half of it, but for what a reader holds. A nil Room bounds nothing.
type Room struct {
	size int64
	used atomic.Int64
}

// NewRoom returns a room of size bytes.
func NewRoom(size int64) *Room { return &Room{size: size} }

// sure is what a store may keep in a full room: others that write much do not take
// a command its few lines.
const sure = 64 << 10

// charge counts in the room what is on the disk now, and has the store keep less where
// there is no room for it. The caller holds work.
func (s *Store) charge() {
	s.mu.Lock()
	room, counts, in := s.o.Room, !s.done && !s.closed, span{0, s.kept}
	why := error(errFull)
	if s.split >= 0 { // memory, until nobody keeps it
		room, counts, in.from = s.o.SpareRoom, !s.closed, s.split
		why = errSpare
	}
	now := int64(0)
	if counts {
		now = in.size() - s.hole.within(in).size()
	}
	s.mu.Unlock()
	if room == nil {
		return
	}
	more := now - s.charged
	s.charged = now
	if room.used.Add(more) <= room.size || more <= 0 || now <= sure {
		return
	}
	half := halves(max(sure, now/2)) // those that have most give most
	s.narrow(bound{max(half.head, in.from), half.tail}, why)
	s.cut()
}

// release has the store count nowhere. The caller holds work.
func (s *Store) release() {
	if s.o.Room != nil {
		s.o.Room.used.Add(-s.charged)
	}
	s.charged = 0
}
