package server

import (
	"context"
	"io"
	"sync"

	"github.com/caisson-run/caisson/sbxerr"
)

// outlet is what a call says to its caller: in the call, and its output in the lane
// once there is one.
type outlet[Res any] struct {
	stream replies[Res]
	cancel context.CancelCauseFunc // ends the call
	moved  func() *Res             // says that the output comes in the lane

	mu     sync.Mutex // held while sending
	lane   *lane      // where the output goes; nil: with the other messages
	over   bool       // the output is, and needs no lane
	closed bool
}

// send sends one message. A caller that cannot be reached has gone: its call is
// cancelled.
func (o *outlet[Res]) send(m *Res) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sendLocked(m)
}

func (o *outlet[Res]) sendLocked(m *Res) error {
	if o.closed {
		return io.ErrClosedPipe
	}
	return o.sent(o.stream.Send(m))
}

// sent cancels the call where err says that the caller was not reached.
func (o *outlet[Res]) sent(err error) error {
	if err == nil {
		return nil
	}
	err = sbxerr.Wrap(sbxerr.Canceled, "server.send", err)
	o.cancel(err)
	return err
}

// sendOutput sends a message that holds output, in the lane where there is one:
// then other messages need not wait for it.
func (o *outlet[Res]) sendOutput(m *Res, inLane func(*lane) error) error {
	o.mu.Lock()
	l := o.lane
	if l == nil {
		defer o.mu.Unlock()
		return o.sendLocked(m)
	}
	o.mu.Unlock()
	return o.sent(inLane(l))
}

// join moves the output to l, and tells the caller behind the last of it that
// comes the old way.
func (o *outlet[Res]) join(l *lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || o.sendLocked(o.moved()) != nil {
		l.close()
		return
	}
	o.lane = l
}

// endOutput says in the lane, if there is one, that this was all.
func (o *outlet[Res]) endOutput() error {
	o.mu.Lock()
	o.over = true
	l := o.lane
	o.mu.Unlock()
	if l == nil {
		return nil
	}
	return o.sent(l.end())
}

// close makes later sends errors: the stream is gone when the handler returns.
func (o *outlet[Res]) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.over = true, true
	if o.lane != nil {
		o.lane.close()
	}
}
