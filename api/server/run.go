package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/sbxerr"
)

const (
	// outputChunk is the most output in one message, in bytes.
	outputChunk = 64 << 10
	// takenStep is how much standard input is taken before its sender is told.
	// It is far below what a client may have outstanding.
	takenStep = 64 << 10
	// lastSignal is the highest signal number of Linux.
	lastSignal = 64
	// pendingSignals is how many signals wait for the command. The kernel keeps
	// one of each kind, so a caller that floods loses nothing it could have had.
	pendingSignals = 64
)

type runStream = connect.BidiStream[caissonv1.RunRequest, caissonv1.RunResponse]

// Run implements SandboxServiceHandler.
func (s sandboxes) Run(ctx context.Context, stream *runStream) error {
	spec, err := receiveStart(ctx, stream, s.startTimeout)
	if err != nil {
		return fail(err)
	}
	req, err := requestOf(spec)
	if err != nil {
		return fail(err)
	}
	if spec.Detach {
		return fail(s.start(ctx, req, stream))
	}
	return fail(s.foreground(ctx, spec.Stdin, req, stream))
}

// receiveStart waits for the first message, but not for long: a caller that
// says nothing must not hold a call.
func receiveStart(ctx context.Context, stream *runStream, timeout time.Duration) (*caissonv1.RunSpec, error) {
	type first struct {
		m   *caissonv1.RunRequest
		err error
	}
	received := make(chan first, 1)
	go func() { // ends with the stream at the latest
		m, err := stream.Receive()
		received <- first{m, err}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, sbxerr.New(sbxerr.APIUsage, "server.run", "no start message within %v", timeout)
	case f := <-received:
		if f.err != nil {
			return nil, receiveError(f.err)
		}
		spec := f.m.GetStart()
		if spec == nil {
			return nil, sbxerr.New(sbxerr.APIUsage, "server.run", "the first message of a run must hold start")
		}
		return spec, nil
	}
}

func (s sandboxes) start(ctx context.Context, req runtime.Request, stream *runStream) error {
	info, err := s.runtime.Start(ctx, req)
	if err != nil {
		return err
	}
	return stream.Send(startedOf(info))
}

func (s sandboxes) foreground(ctx context.Context, withStdin bool, req runtime.Request, stream *runStream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &conversation{stream: stream, cancel: cancel}
	defer c.close()
	signals := make(chan syscall.Signal, pendingSignals)
	rio := runtime.IO{
		Stdout:  c.writer(stdoutOf),
		Stderr:  c.writer(stderrOf),
		Signals: signals,
		Started: func(info runtime.Info) { c.send(startedOf(info)) },
	}
	var in *stdin
	if withStdin {
		in = newStdin(c.acknowledge())
		rio.Stdin = in
	}
	go c.listen(ctx, in, signals)
	result, err := s.runtime.Run(ctx, req, rio)
	if cause := context.Cause(ctx); errors.Is(cause, sbxerr.APIUsage) {
		return cause // the caller broke the protocol: that ended the run
	}
	if err != nil {
		return err
	}
	return c.send(&caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Result{Result: resultOf(result)}})
}

// conversation is the stream of one foreground run.
type conversation struct {
	stream *runStream
	cancel context.CancelCauseFunc

	mu     sync.Mutex // held while sending
	closed bool
}

// send sends one message. A caller that cannot be reached has gone: its run is
// cancelled.
func (c *conversation) send(m *caissonv1.RunResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return io.ErrClosedPipe
	}
	if err := c.stream.Send(m); err != nil {
		err = sbxerr.Wrap(sbxerr.Canceled, "server.send", err)
		c.cancel(err)
		return err
	}
	return nil
}

// close makes later sends errors: the stream is gone when the handler returns.
func (c *conversation) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// acknowledge returns what tells the sender how much input was taken.
func (c *conversation) acknowledge() func(total int64) {
	var told int64
	return func(total int64) {
		if total-told < takenStep {
			return
		}
		told = total
		_ = c.send(&caissonv1.RunResponse{Kind: &caissonv1.RunResponse_StdinTaken{StdinTaken: total}}) // send cancels the run itself
	}
}

// listen passes input and signals on until the caller closes its side or goes
// away. The end of its side is the end of its input, not of the run.
func (c *conversation) listen(ctx context.Context, in *stdin, signals chan<- syscall.Signal) {
	for {
		m, err := c.stream.Receive()
		if err == nil {
			err = deliver(ctx, m, in, signals)
		}
		if err == nil {
			continue
		}
		if in != nil {
			in.end()
		}
		if !errors.Is(err, io.EOF) {
			c.cancel(receiveError(err))
		}
		return
	}
}

func deliver(ctx context.Context, m *caissonv1.RunRequest, in *stdin, signals chan<- syscall.Signal) error {
	switch kind := m.Kind.(type) {
	case *caissonv1.RunRequest_Signal:
		if kind.Signal < 1 || kind.Signal > lastSignal {
			return sbxerr.New(sbxerr.APIUsage, "server.run", "%d is not a signal, send 1 to %d", kind.Signal, lastSignal)
		}
		select {
		case signals <- syscall.Signal(kind.Signal):
		default:
		}
		return nil
	case *caissonv1.RunRequest_Stdin:
		if in == nil {
			return sbxerr.New(sbxerr.APIUsage, "server.run", "input was sent, but start did not set stdin")
		}
		in.push(ctx, kind.Stdin)
		return nil
	case *caissonv1.RunRequest_CloseStdin:
		if in != nil {
			in.end()
		}
		return nil
	case *caissonv1.RunRequest_Start:
		return sbxerr.New(sbxerr.APIUsage, "server.run", "start was sent twice")
	}
	return sbxerr.New(sbxerr.APIUsage, "server.run", "a message holds nothing")
}

// receiveError puts a failure to receive under the code of its reason: our own
// refusals keep theirs, malformed messages are usage, the rest is a caller
// that went away.
func receiveError(err error) error {
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
		return sbxerr.Wrap(sbxerr.APIUsage, "server.receive", err)
	}
	if errors.Is(err, io.EOF) {
		return sbxerr.New(sbxerr.APIUsage, "server.receive", "the call ended before its first message")
	}
	return sbxerr.Wrap(sbxerr.Canceled, "server.receive", err)
}

// writer sends what is written to it as it comes, in chunks. The command's
// pipe gathers what is written while a chunk is on its way, so a slow caller
// gets fewer and larger chunks.
func (c *conversation) writer(message func([]byte) *caissonv1.RunResponse) io.Writer {
	return chunks(func(p []byte) error { return c.send(message(p)) })
}

// chunks is a writer that passes on at most outputChunk bytes at a time.
type chunks func([]byte) error

// Write implements io.Writer.
func (send chunks) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		end := min(done+outputChunk, len(p))
		if err := send(p[done:end]); err != nil {
			return done, err
		}
		done = end
	}
	return len(p), nil
}

func stdoutOf(p []byte) *caissonv1.RunResponse {
	return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Stdout{Stdout: p}}
}

func stderrOf(p []byte) *caissonv1.RunResponse {
	return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Stderr{Stderr: p}}
}

func startedOf(info runtime.Info) *caissonv1.RunResponse {
	return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Started{Started: &caissonv1.Started{Id: info.ID, Name: info.Name}}}
}
