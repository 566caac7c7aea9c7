package proxy

import (
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/limits"
)

// What the kernel queues between two sides is charged to nobody, and either side can
// have it filled: by sending without end, and by not reading. So the connections of a
// sandbox share a room. A few may be wide: these have all that a long way at full
// speed takes. The others are narrow, which costs only those that are far and fast at
// the same time.
//
// The first ones are wide from the start. A narrow one that moves many bytes becomes
// wide when there is a place, which one that waits with nothing queued has to give up.
const (
	wideConnections = 8   // at once, of a room
	fewConnections  = 128 // with more than these, new ones are as narrow as can be
)

// restful is how long nothing moves before a wide connection may lose its place.
const restful = 2 * time.Second

// room is for the connections of one sandbox, out or in.
type room struct {
	part *limits.Share // a place for each connection

	mu    sync.Mutex
	taken int
	wide  map[*seat]struct{}

	pipes places
}

// seat is one connection's part of a room.
type seat struct {
	room *room
	size int // of each buffer, while the connection is narrow

	// Under the room's lock.
	sockets []socket
	wide    bool
}

func newRoom() *room { return &room{part: limits.Connections.Share(), wide: map[*seat]struct{}{}} }

// enter gives a seat to a connection whose first sockets are these.
func (r *room) enter(sockets ...socket) (*seat, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &seat{room: r, size: narrow, wide: len(r.wide) < wideConnections}
	if r.taken >= fewConnections {
		t.size = narrowest
	}
	if err := r.part.Acquire(); err != nil {
		return nil, err
	}
	for _, s := range sockets {
		if err := t.addLocked(s); err != nil {
			r.part.Release()
			return nil, err
		}
	}
	if t.wide {
		r.wide[t] = struct{}{}
	}
	r.taken++
	return t, nil
}

// add bounds the other socket of the connection, too.
func (t *seat) add(s socket) error {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	return t.addLocked(s)
}

func (t *seat) addLocked(s socket) error {
	t.sockets = append(t.sockets, s)
	if t.wide {
		return s.begin()
	}
	return s.fix(t.size)
}

// alone leaves the first socket alone in t: the other one is closed.
func (t *seat) alone() {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	t.sockets = t.sockets[:1:1]
}

// tend is told each time that many bytes were moved. It makes the connection wide if
// there is a place.
func (t *seat) tend() {
	r := t.room
	r.mu.Lock()
	defer r.mu.Unlock()
	adjust := socket.settle
	if !t.wide {
		if len(r.wide) >= wideConnections && !r.vacateLocked() {
			return
		}
		t.wide = true
		r.wide[t] = struct{}{}
		adjust = socket.widen
	}
	for _, s := range t.sockets {
		_ = adjust(s) // fails where it is closed
	}
}

// vacateLocked takes the place of a connection that does not need it.
func (r *room) vacateLocked() bool {
	for t := range r.wide {
		if t.rests() {
			delete(r.wide, t)
			t.wide = false
			return true
		}
	}
	return false
}

// rests reports whether nothing moves and nothing is queued, and makes the connection
// narrow if so. One whose sockets are closed has no need of a place either.
func (t *seat) rests() bool {
	for _, s := range t.sockets {
		if quiet, ok := quietFor(s.conn); ok && (quiet < restful || s.queued() > 0) {
			return false
		}
	}
	for _, s := range t.sockets {
		_ = s.fix(t.size) // fails where it is closed
	}
	return true
}

// lastWords is how much a closed socket may go on sending, in bytes.
const lastWords = 4 << 10

// drain waits until both sides of a connection that are done have taken what they were
// sent, or are reset. What a socket still sends when it is closed is nobody's, and who
// does not read could have as much of that as of connections that end.
func (t *seat) drain() {
	for _, s := range t.sockets {
		s.drain(lastWords)
	}
}

// delivered reports whether nothing of what both sides were sent is still on its way.
func (t *seat) delivered() bool { return t.queued() == 0 }

func (t *seat) queued() (sum int) {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	for _, s := range t.sockets {
		sum += s.queued()
	}
	return sum
}

// leave is told once, when the connection is over.
func (t *seat) leave() {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	t.room.taken--
	t.room.part.Release()
	delete(t.room.wide, t)
}
