package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/sbxerr"
)

const (
	// stdinChunk is the most standard input in one message.
	stdinChunk = 32 << 10
	// stdinWindow is how many bytes may be sent that the command has not taken.
	// The daemon buffers more than that, so a signal never waits behind input
	// that the command does not read.
	stdinWindow = 256 << 10
)

// RunIO connects a foreground command with its caller. Nil fields are not
// connected.
type RunIO struct {
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Signals <-chan syscall.Signal // delivered to the command's process group
	Started func(id, name string) // called once, when the command runs
}

// Run executes spec in the foreground and returns how the command ended. The
// sandbox ends with ctx. An error of the caller's own writers is wrapped under
// SBX-804 and ends the sandbox too. A Read of rio.Stdin that is under way when
// the command ends is not waited for.
func (c *Client) Run(ctx context.Context, spec *caissonv1.RunSpec, rio RunIO) (*caissonv1.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	spec = proto.CloneOf(spec)
	spec.Detach, spec.Stdin = false, rio.Stdin != nil
	r := newRunCall(c.sandboxes.Run(ctx), rio)
	defer r.end(cancel)
	if err := r.send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Start{Start: spec}}); err != nil {
		return nil, err
	}
	go r.sendSignals(ctx)
	if rio.Stdin != nil {
		go r.sendStdin()
	}
	return r.receive()
}

// Start executes spec in a sandbox that outlives the call.
func (c *Client) Start(ctx context.Context, spec *caissonv1.RunSpec) (*caissonv1.Started, error) {
	ctx, cancel := context.WithCancel(ctx)
	spec = proto.CloneOf(spec)
	spec.Detach = true
	var started *caissonv1.Started
	r := newRunCall(c.sandboxes.Run(ctx), RunIO{Started: func(id, name string) {
		started = &caissonv1.Started{Id: id, Name: name}
	}})
	defer r.end(cancel)
	if err := r.send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Start{Start: spec}}); err != nil {
		return nil, err
	}
	if _, err := r.receive(); err != nil && !errors.Is(err, errNoResult) {
		return nil, err
	}
	if started == nil {
		return nil, Explain(errNoResult)
	}
	return started, nil
}

var errNoResult = Explain(sbxerr.New(sbxerr.APIBroken, "api.run", "the daemon ended the run without a result"))

// runCall is one Run under way.
type runCall struct {
	stream *connect.BidiStreamForClient[caissonv1.RunRequest, caissonv1.RunResponse]
	rio    RunIO
	window *window
	mu     sync.Mutex // held while sending
}

func newRunCall(stream *connect.BidiStreamForClient[caissonv1.RunRequest, caissonv1.RunResponse], rio RunIO) *runCall {
	return &runCall{stream: stream, rio: rio, window: newWindow(stdinWindow)}
}

// send sends one message. Once the daemon has ended the call there is nobody
// to send to, and what it said is what receive returns: that is no error here.
func (r *runCall) send(m *caissonv1.RunRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// end ends the call. It cancels first: a sender may be stuck with the lock.
func (r *runCall) end(cancel context.CancelFunc) {
	cancel()
	r.window.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.stream.CloseRequest()  // the result is known; what is left unsent
	_ = r.stream.CloseResponse() // or unread does not matter any more
}

func (r *runCall) sendSignals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-r.rio.Signals:
			if !ok || r.send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Signal{Signal: int32(s)}}) != nil {
				return
			}
		}
	}
}

// sendStdin copies the caller's input until its end. An input that cannot be
// read ends there: the command sees the end of the file.
func (r *runCall) sendStdin() {
	buf := make([]byte, stdinChunk)
	for {
		n, err := r.rio.Stdin.Read(buf)
		if n > 0 {
			if !r.window.take(int64(n)) || r.send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Stdin{Stdin: buf[:n]}}) != nil {
				return
			}
		}
		if err != nil {
			_ = r.send(&caissonv1.RunRequest{Kind: &caissonv1.RunRequest_CloseStdin{CloseStdin: true}}) // receive meets the same failure
			return
		}
	}
}

func (r *runCall) receive() (*caissonv1.Result, error) {
	for {
		m, err := r.stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil, errNoResult
		}
		if err != nil {
			return nil, err
		}
		switch kind := m.Kind.(type) {
		case *caissonv1.RunResponse_Started:
			if r.rio.Started != nil {
				r.rio.Started(kind.Started.GetId(), kind.Started.GetName())
			}
		case *caissonv1.RunResponse_Stdout:
			err = write(r.rio.Stdout, kind.Stdout)
		case *caissonv1.RunResponse_Stderr:
			err = write(r.rio.Stderr, kind.Stderr)
		case *caissonv1.RunResponse_StdinTaken:
			r.window.taken(kind.StdinTaken)
		case *caissonv1.RunResponse_Result:
			return kind.Result, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// write passes output on to the caller's writer, if there is one.
func write(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	if _, err := w.Write(p); err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, "api.write", fmt.Errorf("write the command's output: %w", err))
	}
	return nil
}

// window bounds how far a sender may be ahead of its receiver.
type window struct {
	mu     sync.Mutex
	moved  sync.Cond
	size   int64
	sent   int64
	acked  int64
	closed bool
}

func newWindow(size int64) *window {
	w := &window{size: size}
	w.moved.L = &w.mu
	return w
}

// take waits until n more bytes may be sent; false means that the window closed.
func (w *window) take(n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && w.sent+n > w.acked+w.size {
		w.moved.Wait()
	}
	w.sent += n
	return !w.closed
}

// taken records that the receiver has taken total bytes in all.
func (w *window) taken(total int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = max(w.acked, total)
	w.moved.Broadcast()
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.moved.Broadcast()
}
