package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/gateway/stray"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/sbxerr"
)

// watched is a sandbox of the mode bridge: what it sends goes its own way, and is recorded.
type watched struct {
	id     string
	out    *outbox
	reader *nflog.Reader
	stop   context.CancelFunc
	served sync.WaitGroup
	behind time.Time // when there was more to read than could be waited for
}

func (s *server) watch(id string, socket *os.File) error {
	const op = "gateway.watch"
	if s.sandboxes[id] != nil || s.watched[id] != nil {
		return sbxerr.New(sbxerr.Internal, op, "the sandbox %s is here already", id)
	}
	r, err := nflog.NewReader(socket)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Gateway, op, err)
	}
	w := &watched{id: id, out: s.out, reader: r}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	c := stray.Config{Sandbox: id, Rules: stray.Link{Local: s.local}, Recorder: w}
	w.served.Go(func() { w.report(stray.Serve(ctx, c, r)) })
	s.watched[id] = w
	return nil
}

// Record passes on what was tried.
func (w *watched) Record(a proxy.Attempt) { w.out.event(w.id, control.Report{Attempt: &a}) }

// settle returns when all that was told is read, or the time has come.
func (w *watched) settle(latest time.Time) {
	for {
		if settled, err := w.reader.Settled(); settled || err != nil {
			return
		}
		if time.Now().After(latest) {
			w.behind = time.Now()
			return
		}
		time.Sleep(time.Millisecond) // for another goroutine
	}
}

// report says that nothing of the sandbox is recorded any more, unless that was asked for.
func (w *watched) report(err error) {
	if err != nil {
		w.out.push(control.Report{Broken: &control.Broken{Sandbox: w.id, Reason: err.Error()}})
	}
}

// endSoon is how long what was told is read on when the sandbox goes.
const endSoon = 200 * time.Millisecond

func (w *watched) end() {
	w.settle(time.Now().Add(endSoon))
	w.stop()
	w.served.Wait()
}
