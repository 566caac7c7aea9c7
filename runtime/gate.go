package runtime

import (
	"context"
	"sync/atomic"

	"github.com/caisson-run/caisson/sbxerr"
)

// gate lets a bounded number through at once, and a bounded number wait.
type gate struct {
	slots  chan struct{}
	queue  int64
	queued atomic.Int64
}

// newGate bounds neither where slots is 0.
func newGate(slots, queue int) *gate {
	g := &gate{queue: int64(queue)}
	if slots > 0 {
		g.slots = make(chan struct{}, slots)
	}
	return g
}

// acquire waits for its turn. It refuses at once when too many wait already.
func (g *gate) acquire(ctx context.Context) (release func(), err error) {
	if g.slots == nil {
		return func() {}, nil
	}
	release = func() { <-g.slots }
	select {
	case g.slots <- struct{}{}:
		return release, nil
	default:
	}
	defer g.queued.Add(-1)
	if g.queued.Add(1) > g.queue {
		return nil, sbxerr.New(sbxerr.Busy, "runtime.create", "%d requests wait to make a sandbox, which is the most (sandboxes.queue)", g.queue)
	}
	select {
	case g.slots <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, sbxerr.Wrap(sbxerr.Canceled, "runtime.create", context.Cause(ctx))
	}
}
