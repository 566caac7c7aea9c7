package main

import (
	"io"
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/droplog"
)

// The bounds of what waits for a daemon that does not read.
const (
	maxEvents     = 32 << 10 // of all sandboxes
	maxSandboxOwn = 2 << 10  // of one: more than it can have connections, and than comes at once of what goes past those
)

const _ = uint(maxSandboxOwn - droplog.Burst) // none of it is lost while the daemon is slow

// writeSize is how many bytes are written at once, about.
const writeSize = 64 << 10

// eventDelay is how long an event may wait for others: a connection should not
// have to share the processors with the record of the one before it.
const eventDelay = 5 * time.Millisecond

// outbox holds reports until they are written, in order. Nobody waits for it.
type outbox struct {
	to   io.Writer
	wake chan struct{} // there is something that somebody waits for
	soon chan struct{} // there is an event

	mu     sync.Mutex
	queue  []control.Report
	events int            // in queue
	own    map[string]int // events in queue of each sandbox
	lost   map[string]uint64
}

func newOutbox(to io.Writer) *outbox {
	return &outbox{to: to, wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), own: map[string]int{}, lost: map[string]uint64{}}
}

// push takes a report of which there are only so many: answers, new names.
func (o *outbox) push(r control.Report) {
	o.mu.Lock()
	o.queue = append(o.queue, r)
	o.mu.Unlock()
	ring(o.wake)
}

// event takes what happened to a sandbox, or counts it as lost.
func (o *outbox) event(id string, r control.Report) {
	o.mu.Lock()
	if o.events >= maxEvents || o.own[id] >= maxSandboxOwn {
		o.lost[id]++
		o.mu.Unlock()
		return
	}
	o.events++
	o.own[id]++
	r.Lost = o.lost[id]
	delete(o.lost, id)
	o.queue = append(o.queue, r)
	o.mu.Unlock()
	ring(o.soon)
}

// forget drops what is kept for a sandbox beside the queue.
func (o *outbox) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.lost, id)
}

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// write writes what comes until that fails.
func (o *outbox) write() error {
	for {
		select {
		case <-o.wake:
		case <-o.soon:
			select {
			case <-o.wake:
			case <-time.After(eventDelay):
			}
		}
		if err := o.flush(); err != nil {
			return err
		}
	}
}

// take empties the queue.
func (o *outbox) take() []control.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.queue
	o.queue, o.events = nil, 0
	clear(o.own)
	return taken
}

func (o *outbox) flush() error {
	var batch []byte
	for _, r := range o.take() {
		frame, err := control.EncodeReport(r)
		if err != nil {
			o.drop(r) // a record that cannot be told must not end all sandboxes' traffic
			continue
		}
		if batch = append(batch, frame...); len(batch) < writeSize {
			continue
		}
		if _, err := o.to.Write(batch); err != nil {
			return err
		}
		batch = batch[:0]
	}
	if len(batch) == 0 {
		return nil
	}
	_, err := o.to.Write(batch)
	return err
}

// drop counts r as lost.
func (o *outbox) drop(r control.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case r.Attempt != nil:
		o.lost[r.Attempt.Sandbox] += 1 + r.Lost
	case r.Query != nil:
		o.lost[r.Query.Sandbox] += 1 + r.Lost
	case r.Arrival != nil:
		o.lost[r.Arrival.Sandbox] += 1 + r.Lost
	}
}
