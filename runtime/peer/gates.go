package peer

import (
	"context"
	"sync"
)

// placesPerUser is how many checks of one user may wait for a file system at
// the same time, each with a thread.
const placesPerUser = 4

// gates hand out the places, so that a file system that never answers costs the
// daemon a few threads and its user the workspaces, and nobody else anything.
type gates struct {
	mu   sync.Mutex
	busy map[uint32]*gate
}

type gate struct {
	places chan struct{}
	users  int // who hold a place or wait for one
}

func newGates() *gates { return &gates{busy: map[uint32]*gate{}} }

// enter waits for a place of uid until ctx ends.
func (g *gates) enter(ctx context.Context, uid uint32) (leave func(), err error) {
	at := g.join(uid)
	select {
	case at.places <- struct{}{}:
		return func() {
			<-at.places
			g.part(uid)
		}, nil
	case <-ctx.Done():
		g.part(uid)
		return nil, noAnswer(ctx)
	}
}

func (g *gates) join(uid uint32) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.busy[uid]
	if at == nil {
		at = &gate{places: make(chan struct{}, placesPerUser)}
		g.busy[uid] = at
	}
	at.users++
	return at
}

func (g *gates) part(uid uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.busy[uid]
	if at.users--; at.users == 0 {
		delete(g.busy, uid)
	}
}
