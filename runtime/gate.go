package runtime

import (
	"context"
	"sync/atomic"

	"github.com/caisson-run/caisson/api/sbxerr"
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

// busy reports whether somebody is through, or waits.
func (g *gate) busy() bool { return len(g.slots) > 0 || g.queued.Load() > 0 }

// place is that of one request at a gate: through it, or in the queue before it.
type place struct {
	gate    *gate
	through bool
}

// enter takes a place, and refuses at once when too many wait already. The caller
// leaves it in the end.
func (g *gate) enter() (*place, error) {
	if g.slots == nil {
		return &place{g, true}, nil
	}
	select {
	case g.slots <- struct{}{}:
		return &place{g, true}, nil
	default:
	}
	if g.queued.Add(1) > g.queue {
		g.queued.Add(-1)
		return nil, sbxerr.New(sbxerr.Busy, "runtime.create", "%d requests wait for a sandbox, which is the most (sandboxes.queue)", g.queue)
	}
	return &place{g, false}, nil
}

// pass waits for its turn.
func (p *place) pass(ctx context.Context) error {
	if p.through {
		return nil
	}
	select {
	case p.gate.slots <- struct{}{}:
		p.gate.queued.Add(-1)
		p.through = true
		return nil
	case <-ctx.Done():
		return sbxerr.Wrap(sbxerr.Canceled, "runtime.create", context.Cause(ctx))
	}
}

// leave makes room for another.
func (p *place) leave() {
	switch {
	case !p.through:
		p.gate.queued.Add(-1)
	case p.gate.slots != nil:
		<-p.gate.slots
	}
}
