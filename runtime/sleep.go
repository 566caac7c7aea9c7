package runtime

import (
	"context"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/runtime/idle"
)

// sleeper shows a sandbox to its keeper.
type sleeper struct {
	*host
	*sandbox
}

func (x sleeper) Changing() *sync.Mutex { return &x.changing }

func (x sleeper) Locked(f func(*idle.Clock, bool)) {
	x.update(func() { f(&x.record.Clock, x.state == StateRunning && x.ending == nil) })
}

func (x sleeper) Use() (done func()) {
	x.update(func() {
		x.filework++
		x.busyLocked()
	})
	return func() {
		x.update(func() {
			x.filework--
			x.idleLocked()
		})
	}
}

func (x sleeper) SetPaused(ctx context.Context, paused bool) error {
	to := StateRunning
	if paused {
		to = StatePaused
	} else if x.currentState() != StatePaused { // an earlier daemon's, which does not answer yet
		return nil
	}
	return x.orEnded(x.setFrozen(ctx, x.sandbox, to, idle.ByIdle))
}

// sampleIdle pauses s, of all sandboxes, if it is idle. One that waits for a sandbox that it made
// is not.
func (h *host) sampleIdle(ctx context.Context, s *sandbox, all []*sandbox) {
	r := s.kept()
	if !r.Pauses() || r.Paused {
		return
	}
	read := idle.Reading{Connections: h.connections(s.id)}
	for _, e := range s.executions() {
		stdout, _ := e.stdout.Total()
		stderr, _ := e.stderr.Total()
		read.Output += stdout + stderr
	}
	used := s.meter.Total().Point
	read.At, read.CPU = used.At, used.CPU
	s.keeper.Sample(ctx, read, r.Nested != nil && slices.ContainsFunc(all, func(o *sandbox) bool { return o.identity().parent == s.id && !o.retired() }))
}

// connections are those that a sandbox has open through the gateway.
func (h *host) connections(id string) int {
	if h.opts.Egress == nil {
		return 0
	}
	v, _ := h.opts.Egress.View(id)
	return v.Counters.Open + v.Counters.Inbound
}
