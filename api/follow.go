package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// thawPoll is how often a signal is tried again while its sandbox is paused.
const thawPoll = 100 * time.Millisecond

var errNoResult = Explain(sbxerr.New(sbxerr.APIBroken, "api.run", "the daemon ended the call without a result"))

// events is a stream of a command's events.
type events = connect.ServerStreamForClient[caissonv1.ExecEvent]

// foreground is one command whose events its caller follows. Where the connection
// breaks, it connects again at the offsets that the caller has.
type foreground struct {
	client *Client
	rio    IO
	retry  *retry
	resume bool // connect again where the connection breaks
	shared bool // others may send input too: it has no offsets

	sandbox, exec string        // IDs; empty until the command runs
	started       chan struct{} // closed then
	out, errs     sink
}

func (c *Client) foreground(rio IO) *foreground {
	return &foreground{
		client: c, rio: rio, retry: c.retry(), started: make(chan struct{}),
		out: sink{w: rio.Stdout}, errs: sink{w: rio.Stderr},
	}
}

// run follows the stream that open opens until the command has ended. It takes no signal and
// no size after that: they are the caller's next command's.
func (f *foreground) run(ctx context.Context, open func(context.Context) (*events, error)) (*caissonv1.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel(nil)
	if f.rio.Stdin != nil {
		go func() {
			if err := f.sendInput(ctx); err != nil {
				cancel(err)
			}
		}()
	}
	if f.rio.Signals != nil || f.rio.Resizes != nil {
		others.Go(func() { f.sendOthers(ctx) })
	}
	for {
		result, err := f.talk(ctx, open)
		switch {
		case result != nil:
			return result, nil
		case err == nil:
			err = errNoResult
		}
		if f.resume && f.exec != "" && f.retry.again(ctx, err) {
			open = f.attach
			continue
		}
		if lost := new(inputError); errors.As(context.Cause(ctx), &lost) {
			err = lost.err
		}
		return nil, err
	}
}

// attach continues the command's events.
func (f *foreground) attach(ctx context.Context) (*events, error) {
	return f.client.execs().Attach(ctx, connect.NewRequest(&caissonv1.AttachExecRequest{
		Ref: f.sandbox, Id: f.exec, StdoutOffset: f.out.offset, StderrOffset: f.errs.offset,
	}))
}

// talk follows one stream to its end. The result is nil where the stream had none.
func (f *foreground) talk(ctx context.Context, open func(context.Context) (*events, error)) (result *caissonv1.Result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	defer cancel()         // first: what is unread is not waited for
	for stream.Receive() { // to its end, which frees the connection for another call
		f.retry.connected()
		if err := f.take(stream.Msg()); err != nil {
			return nil, err
		}
		if exit, ok := stream.Msg().Kind.(*caissonv1.ExecEvent_Exit); ok {
			result = orEmpty(exit.Exit)
		}
	}
	return result, stream.Err()
}

// take passes one event on to the caller.
func (f *foreground) take(m *caissonv1.ExecEvent) error {
	switch kind := m.Kind.(type) {
	case *caissonv1.ExecEvent_Started:
		return f.start(kind.Started)
	case *caissonv1.ExecEvent_Stdout:
		return f.out.take(kind.Stdout)
	case *caissonv1.ExecEvent_Stderr:
		return f.errs.take(kind.Stderr)
	}
	return nil
}

// start notes which command runs, the first time that the daemon says it.
func (f *foreground) start(m *caissonv1.Started) error {
	select {
	case <-f.started:
		return nil
	default:
	}
	if f.rio.Resizes != nil && !m.GetExec().GetTty() {
		return Explain(sbxerr.New(sbxerr.APIUsage, "api.resize", "the command has no terminal to resize"))
	}
	f.sandbox, f.exec = cmp.Or(m.GetSandboxId(), f.sandbox), cmp.Or(m.GetExec().GetId(), f.exec)
	if f.rio.Started != nil {
		f.rio.Started(m)
	}
	close(f.started)
	return nil
}

// awaitStart returns false where the call ends before the command runs.
func (f *foreground) awaitStart(ctx context.Context) bool {
	select {
	case <-f.started:
		return true
	case <-ctx.Done():
		return false
	}
}

// sendOthers passes signals and sizes on. A signal whose call breaks may be lost; a size
// is sent again.
func (f *foreground) sendOthers(ctx context.Context) {
	if !f.awaitStart(ctx) {
		return
	}
	signals, resizes := f.rio.Signals, f.rio.Resizes
	for signals != nil || resizes != nil {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			_ = f.signal(ctx, s) // a command that has ended needs none
		case size, ok := <-resizes:
			if !ok {
				resizes = nil
				continue
			}
			_, _ = repeat(ctx, f.client.retry(), func() (struct{}, error) {
				return struct{}{}, f.client.Resize(ctx, f.sandbox, f.exec, size)
			})
		}
	}
}

// signal sends a signal. It waits while the sandbox is paused.
func (f *foreground) signal(ctx context.Context, s syscall.Signal) error {
	for {
		err := f.client.Kill(ctx, f.sandbox, f.exec, s, false)
		if !errors.Is(err, sbxerr.Paused) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(thawPoll):
		}
	}
}

// stdinChunk is the most input in one call, in bytes. A call costs about as much as the
// copying of as many bytes.
const stdinChunk = 1 << 20

// inputError ends a call whose input may be lost.
type inputError struct{ err *Error }

func (e *inputError) Error() string { return e.err.Error() }

// sendInput sends the caller's input until its end. One that cannot be read ends the
// call: the command must not take a part for the whole.
func (f *foreground) sendInput(ctx context.Context) error {
	if !f.awaitStart(ctx) {
		return nil
	}
	var sent int64
	if f.shared { // a command without an input is refused before anybody types
		if closed, err := f.send(ctx, &sent, nil, false); closed || err != nil {
			return err
		}
	}
	for part := range readAhead(ctx, f.rio.Stdin) {
		if l := (leaver)(nil); errors.As(part.err, &l) {
			l.Leave()
			return nil
		}
		if part.err != nil && !errors.Is(part.err, io.EOF) {
			return &inputError{Explain(sbxerr.Wrap(sbxerr.ClientIO, "api.input", fmt.Errorf("read the command's input: %w", part.err)))}
		}
		closed, err := f.send(ctx, &sent, part.data, part.err != nil)
		if closed || err != nil {
			return err
		}
		part.again()
	}
	return nil
}

// leaver is an error of a caller's input by which the caller leaves.
type leaver interface{ Leave() }

// part is what one Read of the caller's input returned.
type part struct {
	data  []byte
	err   error
	again func() // data is not needed any more
}

// readAhead reads the next part while one is being sent. The last part has an error.
func readAhead(ctx context.Context, r io.Reader) <-chan part {
	parts, free := make(chan part), make(chan []byte, 2)
	free <- make([]byte, stdinChunk)
	free <- make([]byte, stdinChunk)
	go func() {
		defer close(parts)
		for err := error(nil); err == nil; {
			buf, n := <-free, 0
			for n == 0 && err == nil {
				n, err = r.Read(buf)
			}
			select {
			case parts <- part{buf[:n], err, func() { free <- buf }}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return parts
}

// send sends one part of the input, again where the connection breaks.
func (f *foreground) send(ctx context.Context, sent *int64, data []byte, end bool) (closed bool, err error) {
	req := &caissonv1.SendInputRequest{Ref: f.sandbox, Id: f.exec, Data: data, Close: end}
	r := f.client.retry()
	r.known = true
	if f.shared {
		r.window = -1 // sent twice it would come twice
	} else {
		req.Offset = sent
	}
	state, err := repeat(ctx, r, func() (*caissonv1.SendInputResponse, error) {
		return call(ctx, f.client.execs().SendInput, req)
	})
	switch {
	case err == nil:
		*sent += int64(len(data))
		return state.Closed, nil
	case ctx.Err() != nil, errors.Is(err, sbxerr.NotFound), errors.Is(err, sbxerr.ExecNotFound):
		return true, nil // the command has ended, or its caller leaves
	case len(data) == 0 && !end:
		return true, &inputError{Explain(err)}
	}
	return true, &inputError{Explain(sbxerr.WithRemedy(sbxerr.APIBroken, "api.input",
		fmt.Errorf("%d bytes of input were on their way and may be lost: %s", len(data), Explain(err).text()),
		"the command runs on as "+f.exec+": attach to it, and send what it has not got"))}
}

func orEmpty(r *caissonv1.Result) *caissonv1.Result {
	if r == nil {
		return &caissonv1.Result{}
	}
	return r
}
