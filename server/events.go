package server

import (
	"context"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// outputChunk is the most output in one event, in bytes. A message is copied before it
// is sent: a caller that does not read costs this much, and what the runtime reads ahead.
const outputChunk = 256 << 10

// execEvents is the stream of one command's events. It is safe for concurrent use.
type execEvents struct {
	stream *connect.ServerStream[caissonv1.ExecEvent]
	cancel context.CancelCauseFunc // ends the call

	mu     sync.Mutex // held while sending
	closed bool
}

// send sends one event. If the caller cannot be reached, the call is cancelled.
func (e *execEvents) send(m *caissonv1.ExecEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return io.ErrClosedPipe
	}
	if err := e.stream.Send(m); err != nil {
		err = sbxerr.Wrap(sbxerr.Canceled, "server.send", err)
		e.cancel(err)
		return err
	}
	return nil
}

// close makes later sends fail: the stream is gone when the handler returns.
func (e *execEvents) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}

func (e *execEvents) started(info runtime.Info, exec runtime.ExecInfo) {
	_ = e.send(startedEvent(info, execPB(exec))) // send cancels the call itself
}

func startedEvent(info runtime.Info, exec *caissonv1.Exec) *caissonv1.ExecEvent {
	return &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Started{
		Started: &caissonv1.Started{SandboxId: info.ID, SandboxName: info.Name, Exec: exec, Warnings: info.Warnings},
	}}
}

// runner runs a command, or connects to one, and returns when it has ended.
type runner func(context.Context, runtime.IO) (*runtime.Result, error)

// follow streams the events of the command that run runs. Its output begins at the
// given offsets.
func follow(ctx context.Context, stream *connect.ServerStream[caissonv1.ExecEvent], stdin []byte, from runtime.AttachOptions, run runner) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &execEvents{stream: stream, cancel: cancel}
	defer e.close()
	result, err := run(ctx, runtime.IO{
		Stdin: stdin, Stdout: e.stdout(from.StdoutOffset), Stderr: e.stderr(from.StderrOffset), Started: e.started,
	})
	if err != nil {
		return err
	}
	return e.send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Exit{Exit: resultOf(result)}})
}

// output sends one stream of a command as it comes, in chunks. While a chunk is being
// sent the store gathers the next, so a slow caller gets fewer and larger chunks.
type output struct {
	send   func(*caissonv1.Output) error
	offset int64
	time   *timestamppb.Timestamp // of what comes next; nil is not told
}

var _ runtime.Skipper = (*output)(nil)

func (e *execEvents) stdout(offset int64) *output {
	return &output{offset: offset, send: func(o *caissonv1.Output) error {
		return e.send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: o}})
	}}
}

func (e *execEvents) stderr(offset int64) *output {
	return &output{offset: offset, send: func(o *caissonv1.Output) error {
		return e.send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stderr{Stderr: o}})
	}}
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		chunk := p[done:min(done+outputChunk, len(p))]
		if err := o.send(&caissonv1.Output{Offset: o.offset, Data: chunk, Time: o.time}); err != nil {
			return done, err
		}
		o.offset += int64(len(chunk))
		done += len(chunk)
	}
	return done, nil
}

// Skip implements runtime.Skipper.
func (o *output) Skip(n int64) error {
	if err := o.send(&caissonv1.Output{Offset: o.offset, Skipped: n}); err != nil {
		return err
	}
	o.offset += n
	return nil
}

// placed is an output that may begin later than it was asked to, and whose parts may have
// their times.
type placed struct {
	*output
	timestamps bool
}

var _ runtime.Placer = placed{}

// Place implements runtime.Placer.
func (p placed) Place(offset int64, came time.Time) error {
	p.offset = offset
	if p.timestamps {
		p.time = timestamp(came)
	}
	return nil
}
