package runtime

import (
	"context"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

// gate lets a bounded number of requests through at once, and a bounded number wait. Both
// keep their last tenth for root. Of those that wait, root's come first, then those of the
// user who has the fewest places, then the oldest.
type gate struct {
	slots int // 0: no bound
	queue int

	mu      sync.Mutex
	taken   int
	held    map[holder]int // places taken
	waiting []*place
}

// newGate bounds neither where slots is 0.
func newGate(slots, queue int) *gate {
	return &gate{slots: slots, queue: queue, held: map[holder]int{}}
}

// reserveOf is how much of a bound only root's own requests use.
func reserveOf(most int) int { return max(0, min(max(1, most/10), most-1)) }

// most is how much of a bound a request may use.
func most(bound int, root bool) int {
	if root {
		return bound
	}
	return bound - reserveOf(bound)
}

// holder is who has places at a gate.
type holder struct {
	uid  uint32
	root bool // by requests of root's own: not by those of pools, or out of a sandbox
}

func holderOf(g peer.Grant) holder { return holder{g.Owner().UID, g.IsRoot()} }

// place is that of one request at a gate: through it, or in the queue before it.
type place struct {
	holder
	gate    *gate
	through chan struct{} // closed when it is its turn
}

// busy reports whether a request is through, or waits.
func (g *gate) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.taken > 0 || len(g.waiting) > 0
}

// queued is how many requests wait.
func (g *gate) queued() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// enter takes a place for h, and refuses at once when too many wait. The caller leaves it
// in the end.
func (g *gate) enter(h holder) (*place, error) {
	p := &place{holder: h, gate: g, through: make(chan struct{})}
	if g.slots == 0 {
		close(p.through)
		return p, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fitsLocked(p) {
		g.letLocked(p)
		return p, nil
	}
	if err := g.checkQueueLocked(p); err != nil {
		return nil, err
	}
	g.waiting = append(g.waiting, p)
	return p, nil
}

// checkQueueLocked refuses one request too many. A user who waits with a quarter of the
// queue leaves the other users a quarter.
func (g *gate) checkQueueLocked(p *place) error {
	const op = "runtime.create"
	all, own := 0, 0 // without root's
	for _, w := range g.waiting {
		if !w.root {
			all++
		}
		if w.holder == p.holder {
			own++
		}
	}
	quarter := g.queue / 4
	switch {
	case len(g.waiting) >= g.queue, !p.root && all >= most(g.queue, false):
		return sbxerr.New(sbxerr.Busy, op, "%d requests wait for a sandbox, which is the most (sandboxes.queue)", len(g.waiting))
	case !p.root && quarter > 0 && own >= quarter && all >= most(g.queue, false)-quarter:
		return sbxerr.New(sbxerr.Busy, op, "%d requests of this user wait for a sandbox, and the last %d of %d places (sandboxes.queue) are for other users", own, quarter, g.queue)
	}
	return nil
}

func (g *gate) fitsLocked(p *place) bool { return g.taken < most(g.slots, p.root) }

func (g *gate) letLocked(p *place) {
	g.taken++
	g.held[p.holder]++
	close(p.through)
}

// nextLocked returns whose turn it is, nil if nobody's.
func (g *gate) nextLocked() (next *place) {
	for _, p := range g.waiting {
		switch {
		case !g.fitsLocked(p):
		case next == nil, p.root && !next.root:
			next = p
		case p.root == next.root && g.held[p.holder] < g.held[next.holder]:
			next = p
		}
	}
	return next
}

// isThrough reports whether the place is one behind the gate.
func (p *place) isThrough() bool { return isClosed(p.through) }

// pass waits for its turn.
func (p *place) pass(ctx context.Context) error {
	select {
	case <-p.through:
		return nil
	default:
	}
	select {
	case <-p.through:
		return nil
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Canceled, "runtime.create", context.Cause(ctx))
	}
}

// leave makes room for another.
func (p *place) leave() {
	g := p.gate
	if g.slots == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.isThrough() {
		g.removeLocked(p)
		return
	}
	g.taken--
	if g.held[p.holder]--; g.held[p.holder] == 0 {
		delete(g.held, p.holder)
	}
	for next := g.nextLocked(); next != nil; next = g.nextLocked() {
		g.removeLocked(next)
		g.letLocked(next)
	}
}

func (g *gate) removeLocked(p *place) {
	g.waiting = slices.DeleteFunc(g.waiting, func(w *place) bool { return w == p })
}
