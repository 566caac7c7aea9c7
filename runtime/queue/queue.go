// Package queue bounds how many requests do something at once, and lets a bounded number wait.
package queue

import (
	"context"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Queue lets a bounded number of requests through at once, and a bounded number wait. Both
// keep their last tenth for root. Of those that wait, root's come first, then those of the
// user who has the fewest places, then the oldest.
type Queue struct {
	slots int // 0: no bound
	most  int // that wait

	mu      sync.Mutex
	taken   int
	held    map[User]int // places taken
	waiting []*Place
}

// New bounds neither where slots is 0.
func New(slots, waiting int) *Queue {
	return &Queue{slots: slots, most: waiting, held: map[User]int{}}
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

// User is who has places.
type User struct {
	UID  uint32
	Root bool // by requests of root's own: not by those of pools, or out of a sandbox
}

// UserOf returns whose the requests under a grant are.
func UserOf(g peer.Grant) User { return User{g.Owner().UID, g.IsRoot()} }

// Slots is how many requests are let through at once; 0 is no bound.
func (q *Queue) Slots() int { return q.slots }

// Place is that of one request: through, or waiting.
type Place struct {
	user    User
	queue   *Queue
	through chan struct{} // closed when it is its turn
}

// Busy reports whether a request is through, or waits.
func (q *Queue) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken > 0 || len(q.waiting) > 0
}

// Waiting is how many requests wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Enter takes a place for u, and refuses at once when too many wait. The caller leaves it
// in the end.
func (q *Queue) Enter(u User) (*Place, error) {
	p := &Place{user: u, queue: q, through: make(chan struct{})}
	if q.slots == 0 {
		close(p.through)
		return p, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fitsLocked(p) {
		q.letLocked(p)
		return p, nil
	}
	if err := q.checkQueueLocked(p); err != nil {
		return nil, err
	}
	q.waiting = append(q.waiting, p)
	return p, nil
}

// checkQueueLocked refuses one request too many. A user who waits with a quarter of the
// queue leaves the other users a quarter.
func (q *Queue) checkQueueLocked(p *Place) error {
	const op = "runtime.create"
	all, own := 0, 0 // without root's
	for _, w := range q.waiting {
		if !w.user.Root {
			all++
		}
		if w.user == p.user {
			own++
		}
	}
	quarter := q.most / 4
	switch {
	case len(q.waiting) >= q.most, !p.user.Root && all >= most(q.most, false):
		return sbxerr.New(sbxerr.Busy, op, "%d requests wait for a sandbox, which is the most (sandboxes.queue)", len(q.waiting))
	case !p.user.Root && quarter > 0 && own >= quarter && all >= most(q.most, false)-quarter:
		return sbxerr.New(sbxerr.Busy, op, "%d requests of this user wait for a sandbox, and the last %d of %d places (sandboxes.queue) are for other users", own, quarter, q.most)
	}
	return nil
}

func (q *Queue) fitsLocked(p *Place) bool { return q.taken < most(q.slots, p.user.Root) }

func (q *Queue) letLocked(p *Place) {
	q.taken++
	q.held[p.user]++
	close(p.through)
}

// nextLocked returns whose turn it is, nil if nobody's.
func (q *Queue) nextLocked() (next *Place) {
	for _, p := range q.waiting {
		switch {
		case !q.fitsLocked(p):
		case next == nil, p.user.Root && !next.user.Root:
			next = p
		case p.user.Root == next.user.Root && q.held[p.user] < q.held[next.user]:
			next = p
		}
	}
	return next
}

// IsThrough reports whether it is the turn of the request, or was.
func (p *Place) IsThrough() bool {
	select {
	case <-p.through:
		return true
	default:
		return false
	}
}

// Unbounded reports whether there is room for everybody, so that nobody waits for it to be left.
func (p *Place) Unbounded() bool { return p.queue.slots == 0 }

// Pass waits for its turn.
func (p *Place) Pass(ctx context.Context) error {
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

// Leave makes room for another.
func (p *Place) Leave() {
	q := p.queue
	if q.slots == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.IsThrough() {
		q.removeLocked(p)
		return
	}
	q.taken--
	if q.held[p.user]--; q.held[p.user] == 0 {
		delete(q.held, p.user)
	}
	for next := q.nextLocked(); next != nil; next = q.nextLocked() {
		q.removeLocked(next)
		q.letLocked(next)
	}
}

func (q *Queue) removeLocked(p *Place) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *Place) bool { return w == p })
}
