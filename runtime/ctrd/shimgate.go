package ctrd

import (
	"context"
	"slices"
	"sync"
)

// shimGate keeps the creates and deletes of containers that share a shim from
// meeting where that goes wrong. A shim ends with its last container, and one that is
// just being made in it fails with it; and two that begin, or one that ends and one
// that begins, take the socket from each other, so that one is never found again. So
// a create is alone unless a container stays. Shims are named by their sockets.
type shimGate struct {
	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, at each change
	rooms   map[string]*room
	homes   map[string]string // container: its shim
}

// room is what is known of one shim.
type room struct {
	stay    map[string]bool // containers that it serves and that nobody deletes
	making  int
	leaving int
}

func newShimGate() *shimGate {
	return &shimGate{changed: make(chan struct{}), rooms: map[string]*room{}, homes: map[string]string{}}
}

// adopt notes a container that was made before.
func (g *shimGate) adopt(shim, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.room(shim).stay[id] = true
	g.homes[id] = shim
}

// create waits until a container may be made in shim. The caller says by made how
// that ended.
func (g *shimGate) create(ctx context.Context, shim, id string) (made func(ok bool), err error) {
	enter := func() bool {
		r := g.room(shim)
		if len(r.stay) == 0 && r.making+r.leaving > 0 {
			return false
		}
		r.making++
		return true
	}
	if err := g.await(ctx, enter); err != nil {
		return nil, err
	}
	return func(ok bool) {
		g.change(func() {
			r := g.room(shim)
			r.making--
			if ok {
				r.stay[id] = true
				g.homes[id] = shim
			}
			g.tidy(shim)
		})
	}, nil
}

// remove waits until id may be deleted. The caller says by done how that ended. What
// is not known shares no shim with anybody.
func (g *shimGate) remove(ctx context.Context, id string) (done func(ok bool), err error) {
	var shim string
	enter := func() bool {
		if shim = g.homes[id]; shim == "" {
			return true
		}
		r := g.room(shim)
		if r.making > 0 && len(r.stay) < 2 {
			return false
		}
		delete(r.stay, id)
		r.leaving++
		return true
	}
	if err := g.await(ctx, enter); err != nil {
		return nil, err
	}
	return func(ok bool) {
		g.change(func() { g.leave(shim, id, ok) })
	}, nil
}

// leave ends a remove. One that failed leaves one that stays.
func (g *shimGate) leave(shim, id string, ok bool) {
	if shim == "" {
		return
	}
	r := g.room(shim)
	r.leaving--
	if ok {
		delete(g.homes, id)
	} else if g.homes[id] == shim { // nobody else deleted it meanwhile
		r.stay[id] = true
	}
	g.tidy(shim)
}

// last returns the shim of id if none of its containers stays, else "".
func (g *shimGate) last(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	shim := g.homes[id]
	if shim == "" || len(g.room(shim).stay) > 0 {
		return ""
	}
	return shim
}

// empty reports whether no container stays in shim.
func (g *shimGate) empty(shim string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rooms[shim] == nil || len(g.rooms[shim].stay) == 0
}

// ifIdle does fn unless a container is being made in one of shims; none begins
// meanwhile.
func (g *shimGate) ifIdle(shims []string, fn func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(shims, func(s string) bool { return g.rooms[s] != nil && g.rooms[s].making > 0 }) {
		return nil
	}
	return fn()
}

func (g *shimGate) await(ctx context.Context, enter func() bool) error {
	for {
		g.mu.Lock()
		entered, changed := enter(), g.changed
		g.mu.Unlock()
		if entered {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// change does fn and wakes up who waits.
func (g *shimGate) change(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn()
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *shimGate) room(shim string) *room {
	if g.rooms[shim] == nil {
		g.rooms[shim] = &room{stay: map[string]bool{}}
	}
	return g.rooms[shim]
}

func (g *shimGate) tidy(shim string) {
	if r := g.rooms[shim]; r != nil && r.making == 0 && r.leaving == 0 && len(r.stay) == 0 {
		delete(g.rooms, shim)
	}
}
