package main

import (
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/droplog"
)

// watched is a sandbox of the mode bridge: only its refused packets are recorded.
type watched struct {
	id     string
	log    *droplog.Log
	served sync.WaitGroup
	out    *outbox
}

// watch reads from a copy of socket until the sandbox is removed.
func (s *server) watch(id string, socket *os.File) error {
	const op = "gateway.watch"
	if s.sandboxes[id] != nil || s.watched[id] != nil {
		return sbxerr.New(sbxerr.Internal, op, "the sandbox %s is here already", id)
	}
	w := &watched{id: id, out: s.out}
	var err error
	if w.log, err = droplog.New(droplog.Config{Sandbox: id, Rules: droplog.Link{}, Recorder: w}, socket); err != nil {
		return sbxerr.Wrap(sbxerr.Gateway, op, err)
	}
	w.served.Go(func() {
		if err := w.log.Serve(); err != nil {
			w.out.push(control.Report{Broken: &control.Broken{Sandbox: w.id, Reason: err.Error()}})
		}
	})
	s.watched[id] = w
	return nil
}

// Record passes on a refusal.
func (w *watched) Record(a attempt.Attempt) { w.out.event(w.id, control.Report{Attempt: &a}) }

func (w *watched) settle(latest time.Time) bool { return w.log.Settle(latest) }

func (w *watched) end() {
	w.log.End()
	w.served.Wait()
}
