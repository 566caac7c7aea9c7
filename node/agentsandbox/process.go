package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	processv1 "github.com/caisson-run/caisson/node/agentsandbox/process/v1"
)

// process is a command of Start.
type process struct {
	exec     string
	terminal bool
	input    *input
}

// table numbers the commands of Start that run. A number is never used again.
type table struct {
	mu    sync.Mutex
	last  int32
	known map[int32]*process
}

func (t *table) add(p *process) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[int32]*process{}
	}
	t.last++
	t.known[t.last] = p
	return t.last
}

func (t *table) remove(id int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, id)
}

func (t *table) find(id int32) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.known[id]; p != nil {
		return p, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no process %d runs", id))
}

// input is what WriteStdin sends. Read takes one call's bytes at a time.
type input struct {
	data      chan []byte
	ended     chan struct{} // by the client
	over      chan struct{} // the command is
	end, stop func()
	rest      []byte
}

func newInput() *input {
	in := &input{data: make(chan []byte), ended: make(chan struct{}), over: make(chan struct{})}
	in.end = sync.OnceFunc(func() { close(in.ended) })
	in.stop = sync.OnceFunc(func() { close(in.over) })
	return in
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if len(in.rest) == 0 {
		select {
		case in.rest = <-in.data:
		case <-in.ended:
			return 0, io.EOF
		case <-in.over:
			return 0, io.EOF
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

func (in *input) write(ctx context.Context, p []byte) error {
	select {
	case <-in.ended: // which data must not overtake
		return errEnded
	default:
	}
	select {
	case in.data <- p:
		return nil
	case <-in.ended:
		return errEnded
	case <-in.over:
		return connect.NewError(connect.CodeNotFound, errors.New("the process has ended"))
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errEnded = connect.NewError(connect.CodeFailedPrecondition, errors.New("the input of the process has ended"))

// spec is a command of a client.
func (r *runtime) spec(ctx context.Context, c *processv1.ProcessConfig) (*caissonv1.ExecSpec, error) {
	if len(c.GetCommand()) == 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("config.command is empty"))
	}
	spec := &caissonv1.ExecSpec{Args: c.Command, Env: c.EnvVars, Workdir: r.Dir}
	if c.GetCwd() != "" {
		p, err := r.resolve(ctx, c.GetCwd())
		if err != nil {
			return nil, grpcError(fmt.Errorf("config.cwd: %w", err))
		}
		spec.Workdir = p.path
	}
	return spec, nil
}

// exitCode is that of agent-sandbox: -1 where a signal ended the command.
func exitCode(r *caissonv1.Result) int32 {
	if r.Signal != 0 {
		return -1
	}
	return r.ExitCode
}

// Execute implements processv1connect.ProcessServiceHandler.
func (r *runtime) Execute(ctx context.Context, req *connect.Request[processv1.ExecuteRequest]) (*connect.Response[processv1.ExecuteResponse], error) {
	spec, err := r.spec(ctx, req.Msg.Config)
	if err != nil {
		return nil, err
	}
	f, err := r.run(ctx, spec)
	defer f.free()
	if err != nil {
		return nil, grpcError(err)
	}
	return connect.NewResponse(&processv1.ExecuteResponse{
		ExitCode: exitCode(f.Result), Stdout: f.stdout.Bytes(), Stderr: f.stderr.Bytes(),
	}), nil
}

// Start implements processv1connect.ProcessServiceHandler. The end of the stream ends the command.
func (r *runtime) Start(ctx context.Context, req *connect.Request[processv1.StartRequest], to *connect.ServerStream[processv1.StartResponse]) error {
	spec, err := r.spec(ctx, req.Msg.Config)
	if err != nil {
		return err
	}
	if req.Msg.Pty != nil {
		if err := setTerminal(spec, req.Msg.Pty); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &process{terminal: spec.Tty != nil, input: newInput()}
	defer p.input.stop()
	begun := func(s *caissonv1.Started) {
		p.exec = s.GetExec().GetId()
		id := r.table.add(p)
		context.AfterFunc(ctx, func() { r.table.remove(id) })
		if to.Send(&processv1.StartResponse{Event: &processv1.StartResponse_Init{Init: &processv1.InitEvent{ProcessId: id}}}) != nil {
			cancel()
		}
	}
	result, err := r.caisson.Exec(ctx, r.ID, spec, api.IO{
		Stdin: p.input, Started: begun,
		Stdout: writer(func(b []byte) error {
			return to.Send(&processv1.StartResponse{Event: &processv1.StartResponse_Stdout{Stdout: b}})
		}),
		Stderr: writer(func(b []byte) error {
			return to.Send(&processv1.StartResponse{Event: &processv1.StartResponse_Stderr{Stderr: b}})
		}),
	})
	if err != nil {
		return grpcError(err)
	}
	return to.Send(&processv1.StartResponse{Event: &processv1.StartResponse_Exit{Exit: &processv1.ExitEvent{ExitCode: exitCode(result)}}})
}

type writer func([]byte) error

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) { return len(p), w(p) }

func setTerminal(spec *caissonv1.ExecSpec, pty *processv1.PTY) error {
	size, err := sizeOf(pty.Cols, pty.Rows)
	if pty.Cols == 0 || pty.Rows == 0 {
		size, err = api.Size{Rows: 24, Cols: 80}, nil
	}
	if err != nil {
		return err
	}
	env := map[string]string{"TERM": "xterm"}
	for name, value := range spec.Env {
		env[name] = value
	}
	spec.Tty, spec.Env = size.Message(), env
	return nil
}

func sizeOf(cols, rows uint32) (api.Size, error) {
	if cols < 1 || rows < 1 || cols > math.MaxUint16 || rows > math.MaxUint16 {
		return api.Size{}, connect.NewError(connect.CodeInvalidArgument, errors.New("cols and rows are 1 to 65535"))
	}
	return api.Size{Rows: uint16(rows), Cols: uint16(cols)}, nil
}

// WriteStdin implements processv1connect.ProcessServiceHandler.
func (r *runtime) WriteStdin(ctx context.Context, req *connect.Request[processv1.WriteStdinRequest]) (*connect.Response[processv1.WriteStdinResponse], error) {
	p, err := r.table.find(req.Msg.ProcessId)
	if err != nil {
		return nil, err
	}
	if req.Msg.GetEof() != nil {
		p.input.end()
	} else if b := req.Msg.GetInput(); len(b) > 0 {
		err = p.input.write(ctx, b)
	}
	return connect.NewResponse(&processv1.WriteStdinResponse{}), err
}

// signals are those that a client may send.
var signals = map[processv1.Signal]syscall.Signal{
	processv1.Signal_SIGNAL_SIGINT: syscall.SIGINT, processv1.Signal_SIGNAL_SIGKILL: syscall.SIGKILL, processv1.Signal_SIGNAL_SIGTERM: syscall.SIGTERM,
}

// SendSignal implements processv1connect.ProcessServiceHandler.
func (r *runtime) SendSignal(ctx context.Context, req *connect.Request[processv1.SendSignalRequest]) (*connect.Response[processv1.SendSignalResponse], error) {
	p, err := r.table.find(req.Msg.ProcessId)
	if err != nil {
		return nil, err
	}
	signal, ok := signals[req.Msg.Signal]
	if !ok {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the signal %s is none of SIGINT, SIGKILL and SIGTERM", req.Msg.Signal))
	}
	err = r.caisson.Kill(ctx, r.ID, p.exec, signal, false)
	if err != nil && !errors.Is(err, sbxerr.State) { // a command that has just ended
		return nil, grpcError(err)
	}
	return connect.NewResponse(&processv1.SendSignalResponse{}), nil
}

// ResizeTTY implements processv1connect.ProcessServiceHandler.
func (r *runtime) ResizeTTY(ctx context.Context, req *connect.Request[processv1.ResizeTTYRequest]) (*connect.Response[processv1.ResizeTTYResponse], error) {
	p, err := r.table.find(req.Msg.ProcessId)
	if err != nil {
		return nil, err
	}
	if !p.terminal {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
	}
	size, err := sizeOf(req.Msg.Cols, req.Msg.Rows)
	if err != nil {
		return nil, err
	}
	if err := r.caisson.Resize(ctx, r.ID, p.exec, size); err != nil {
		return nil, grpcError(err)
	}
	return connect.NewResponse(&processv1.ResizeTTYResponse{}), nil
}
