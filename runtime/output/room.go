package output

import (
	"sync/atomic"

	"github.com/caisson-run/caisson/sbxerr"
)

// Room is what several stores may have on the disk together while they are being
// filled. Each store's own limit is a promise to its command, which many commands
// may have at once; the room bounds what comes of all these promises. A nil Room
// bounds nothing.
type Room struct {
	size int64
	used atomic.Int64
}

// NewRoom returns a room of size bytes.
func NewRoom(size int64) *Room { return &Room{size: size} }

// sure is what a store may keep in a full room: others that write much do not take
// a command its few lines.
const sure = 64 << 10

// errFull is what a store has lost its bytes for that met a full room.
var errFull = sbxerr.WithRemedy(sbxerr.Limits, "output.keep", fullError{},
	"write to a file in the sandbox, run fewer of them at once, or raise sandboxes.kept_output")

type fullError struct{}

func (fullError) Error() string {
	return "the commands that run in the sandbox have written more than is kept of all of them together"
}

// Within makes what s keeps count in room until it is finished.
func (s *Store) Within(room *Room) {
	s.work.Lock()
	defer s.work.Unlock()
	if s.spared {
		return
	}
	s.room = room
	s.occupy()
}

func (s *Store) noRoom() error {
	if s.spared {
		return errSpare
	}
	return errFull
}

// occupy counts in the room what is on the disk now, and gives up keeping where
// there is no room for it. The caller holds work.
func (s *Store) occupy() {
	if s.room == nil {
		return
	}
	s.mu.Lock()
	now := max(0, s.kept-max(0, s.gone-s.bound.holesFrom()))
	if s.done && !s.spared || s.closed { // what is spared is memory, until nobody keeps it
		now = 0
	}
	more := now - s.charged
	s.charged = now
	lost := s.lost != nil
	s.mu.Unlock()
	if s.room.used.Add(more) > s.room.size && now > sure && !lost {
		s.lose(s.noRoom())
	}
}
