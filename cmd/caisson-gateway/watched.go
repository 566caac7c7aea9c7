package main

import (
	"errors"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/droplog"
	"github.com/caisson-run/caisson/gateway/proxy"
)

// watched is a sandbox of the mode bridge: what it sends goes its own way, and is recorded.
type watched struct {
	logs
	id  string
	out *outbox
}

// watch takes the sockets of control.Watch, whose order is fixed.
func (s *server) watch(id string, files []*os.File) error {
	const op = "gateway.watch"
	if s.sandboxes[id] != nil || s.watched[id] != nil {
		return sbxerr.New(sbxerr.Internal, op, "the sandbox %s is here already", id)
	}
	w := &watched{id: id, out: s.out}
	c := droplog.Config{Sandbox: id, Rules: droplog.Link{Local: s.local}, Recorder: w}
	var errs []error
	for i, open := range []func(droplog.Config, *os.File) (*droplog.Log, error){droplog.Packets, droplog.Packets, droplog.Ends} {
		log, err := open(c, files[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.all = append(w.all, log)
	}
	if err := errors.Join(errs...); err != nil {
		w.end()
		return sbxerr.Wrap(sbxerr.Gateway, op, err)
	}
	w.serve(w.report)
	s.watched[id] = w
	return nil
}

// Record passes on what was tried.
func (w *watched) Record(a proxy.Attempt) { w.out.event(w.id, control.Report{Attempt: &a}) }

// report says that not all of the sandbox is recorded any more.
func (w *watched) report(err error) {
	w.out.push(control.Report{Broken: &control.Broken{Sandbox: w.id, Reason: err.Error()}})
}
