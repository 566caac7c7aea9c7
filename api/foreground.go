package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/sbxerr"
)

// dialect is how the messages of one call are made and read.
type dialect[Req, Res any] struct {
	stdin      func([]byte) *Req
	closeStdin func() *Req
	signal     func(int32) *Req
	resize     func(*caissonv1.WinSize) *Req
	hear       func(*Res) event
}

// event is what the daemon says in one message. At most one field is set.
type event struct {
	started        *caissonv1.Exec
	stdout, stderr []byte
	stdoutSkipped  int64
	stderrSkipped  int64
	taken          int64
	moved          bool
	result         *caissonv1.Result
}

func (e event) isOutput() bool {
	return e.stdout != nil || e.stderr != nil || e.stdoutSkipped > 0 || e.stderrSkipped > 0
}

// foreground is one command that is connected with its caller, over one
// connection after the other.
type foreground[Req, Res any] struct {
	dialect[Req, Res]
	open     func(context.Context) *connect.BidiStreamForClient[Req, Res]
	follow   func(context.Context) stream[Req, Res]       // opens the first call, where its caller says no more; else nil
	attach   func(exec string, stdout, stderr int64) *Req // nil: a call that breaks is over
	openLane openLane                                     // nil: output is not to have one
	rio      IO
	retry    *retry

	exec        string // ID; empty until the daemon said it
	sandbox     string // ID, with it
	told        bool   // rio.Started was called
	out, errs   sink
	input       *gate[*link[Req, Res]]
	reattaching bool
}

var errNoResult = Explain(sbxerr.New(sbxerr.APIBroken, "api.run", "the daemon ended the call without a result"))

// run says first to the daemon and returns how the command ended.
func (f *foreground[Req, Res]) run(ctx context.Context, first *Req) (*caissonv1.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.out.w, f.errs.w = f.rio.Stdout, f.rio.Stderr
	f.input = newGate[*link[Req, Res]](stdinWindow)
	defer f.input.close()
	if f.rio.Stdin != nil {
		go f.sendInput()
	}
	if f.rio.Signals != nil || f.rio.Resizes != nil {
		go f.sendOthers(ctx)
	}
	for {
		result, err := f.talk(ctx, first)
		if err == nil {
			return result, nil
		}
		if err := f.comeBack(ctx, err); err != nil {
			return nil, err
		}
		first, f.reattaching = f.attach(f.exec, f.out.offset, f.errs.offset), true
	}
}

// comeBack waits until the daemon should be asked again after err, and returns
// the error that ends the call where it should not.
func (f *foreground[Req, Res]) comeBack(ctx context.Context, err error) error {
	if f.attach == nil || f.exec == "" {
		return err
	}
	lost := f.input.unacknowledged()
	if lost > 0 && f.retry.broken(err) && ctx.Err() == nil {
		return Explain(sbxerr.WithRemedy(sbxerr.APIBroken, "api.attach",
			fmt.Errorf("%d bytes of input were on their way and may be lost: %s", lost, Explain(err).text()),
			"the command runs on as "+f.exec+": attach to it, and send what it has not got"))
	}
	if !f.retry.again(ctx, err) {
		return err
	}
	return nil
}

// talk holds one connection, from its first message to its end.
func (f *foreground[Req, Res]) talk(ctx context.Context, first *Req) (*caissonv1.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &link[Req, Res]{stream: f.begin(ctx)}
	side := f.laneOf(l, cancel)
	defer side.leave()
	defer l.end(cancel)
	if err := l.send(first); err != nil {
		return nil, err
	}
	defer f.input.leave()
	if !f.waits() {
		f.input.join(l) // input may follow at once
	}
	for {
		m, err := l.stream.Receive()
		if errors.Is(err, io.EOF) {
			err = errNoResult
		}
		if err != nil {
			return nil, side.or(err)
		}
		e := f.hear(m)
		if e.result != nil {
			return f.end(e.result, side)
		}
		if err := f.take(ctx, e, l, side); err != nil {
			return nil, err
		}
	}
}

// begin opens the call of the next connection.
func (f *foreground[Req, Res]) begin(ctx context.Context) stream[Req, Res] {
	if f.follow != nil && !f.reattaching {
		return f.follow(ctx)
	}
	return f.open(ctx)
}

// waits reports whether nothing can be said before it is known which command runs.
func (f *foreground[Req, Res]) waits() bool { return f.follow != nil || f.reattaching }

// laneOf returns what may become the lane of l.
func (f *foreground[Req, Res]) laneOf(l *link[Req, Res], fail context.CancelFunc) *lane[Res] {
	return &lane[Res]{
		open: f.openLane, call: l.stream, fail: fail,
		take: func(m *Res) error { return f.write(f.hear(m)) },
	}
}

// end returns the result when the output is there too. Where the lane broke, the
// rest of it comes without one.
func (f *foreground[Req, Res]) end(result *caissonv1.Result, side *lane[Res]) (*caissonv1.Result, error) {
	if err := side.wait(); err != nil {
		f.openLane = nil
		return nil, err
	}
	return result, nil
}

func (f *foreground[Req, Res]) take(ctx context.Context, e event, l *link[Req, Res], side *lane[Res]) error {
	switch {
	case e.taken > 0:
		f.input.taken(e.taken)
	case e.started != nil:
		f.start(e.started, l)
	case e.moved:
		return side.join()
	case e.isOutput():
		if err := side.count(ctx, len(e.stdout)+len(e.stderr)); err != nil {
			return err
		}
		return f.write(e)
	}
	return nil
}

// write passes on output.
func (f *foreground[Req, Res]) write(e event) error {
	switch {
	case e.stdout != nil:
		return f.out.write(e.stdout)
	case e.stderr != nil:
		return f.errs.write(e.stderr)
	case e.stdoutSkipped > 0:
		return f.out.skip(e.stdoutSkipped)
	case e.stderrSkipped > 0:
		return f.errs.skip(e.stderrSkipped)
	}
	return nil
}

// start takes note of the command. On a connection that is not the first, what
// the sides may not both know is said again.
func (f *foreground[Req, Res]) start(exec *caissonv1.Exec, l *link[Req, Res]) {
	f.retry.connected()
	f.exec, f.sandbox = exec.Id, exec.SandboxId
	if !f.told && f.rio.Started != nil {
		f.rio.Started(exec)
	}
	f.told = true
	if !f.waits() {
		return
	}
	size, ended := f.input.join(l)
	if size != nil {
		_ = l.send(f.resize(size.Message())) // talk meets the same failure
	}
	if ended {
		_ = l.send(f.closeStdin())
	}
}

// link is one connection.
type link[Req, Res any] struct {
	stream stream[Req, Res]
	mu     sync.Mutex // held while sending
}

// send sends one message. Once the daemon has ended the call there is nobody
// to send to, and what it said is what the receiver meets: that is no error
// here.
func (l *link[Req, Res]) send(m *Req) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// end ends the call. It cancels first: a sender may be stuck with the lock.
func (l *link[Req, Res]) end(cancel context.CancelFunc) {
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.stream.CloseRequest()  // the result is known; what is left unsent
	_ = l.stream.CloseResponse() // or unread does not matter any more
}
