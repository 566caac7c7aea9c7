package workspaces

import (
	"context"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// locks have one lock for each ID that somebody holds or waits for.
type locks struct {
	mu sync.Mutex
	by map[string]*lock
}

type lock struct {
	held  chan struct{} // full while it is
	users int           // who hold it or wait
}

// acquire waits for the lock of id, until ctx ends.
func (l *locks) acquire(ctx context.Context, id string) (release func(), err error) {
	k := l.use(id)
	select {
	case k.held <- struct{}{}:
		return func() { l.release(id, k) }, nil
	case <-ctx.Done():
		l.leave(id, k)
		return nil, sbxerr.Wrap(sbxerr.Canceled, "workspaces.lock", context.Cause(ctx))
	}
}

// try is acquire without a wait.
func (l *locks) try(id string) (release func(), ok bool) {
	k := l.use(id)
	select {
	case k.held <- struct{}{}:
		return func() { l.release(id, k) }, true
	default:
		l.leave(id, k)
		return nil, false
	}
}

func (l *locks) use(id string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.by[id]
	if k == nil {
		if l.by == nil {
			l.by = map[string]*lock{}
		}
		k = &lock{held: make(chan struct{}, 1)}
		l.by[id] = k
	}
	k.users++
	return k
}

func (l *locks) leave(id string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.by, id)
	}
}

func (l *locks) release(id string, k *lock) {
	<-k.held
	l.leave(id, k)
}
