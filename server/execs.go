package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
)

// What Exec keeps of each stream, in bytes: it is answered in one message.
const (
	unaryOutputLimit    = 1 << 20
	maxUnaryOutputLimit = 64 << 20
)

// execs serves ExecService.
type execs struct{ runtime Execs }

// request reads what Exec and Start have in common.
func (execs) request(ref string, spec *caissonv1.ExecSpec) (plan.ExecRequest, error) {
	if err := checkRef("ref", ref); err != nil {
		return plan.ExecRequest{}, err
	}
	if spec == nil {
		return plan.ExecRequest{}, sbxerr.New(sbxerr.APIUsage, "server.exec", "there is no exec: it says what to run")
	}
	return execOf(spec)
}

// Exec implements ExecServiceHandler.
func (s execs) Exec(ctx context.Context, r *connect.Request[caissonv1.ExecRequest]) (*connect.Response[caissonv1.ExecResponse], error) {
	req, err := s.unary(r.Msg)
	if err != nil {
		return nil, fail(err)
	}
	out := &caissonv1.ExecResponse{}
	stdout, stderr := api.NewKept(*req.OutputLimit), api.NewKept(*req.OutputLimit)
	rio := runtime.IO{
		Stdin: r.Msg.Stdin, Stdout: stdout, Stderr: stderr,
		Started: func(_ runtime.Info, e runtime.ExecInfo) { out.Id = e.ID },
	}
	result, err := s.runtime.Exec(ctx, r.Msg.Ref, req, rio)
	if err != nil {
		return nil, fail(err)
	}
	out.Result = resultOf(result)
	out.Stdout, out.StdoutSkipped = stdout.Bytes(result.StdoutBytes)
	out.Stderr, out.StderrSkipped = stderr.Bytes(result.StderrBytes)
	return connect.NewResponse(out), nil
}

// unary reads an ExecRequest and bounds its output by what one message holds.
func (s execs) unary(m *caissonv1.ExecRequest) (plan.ExecRequest, error) {
	req, err := s.request(m.Ref, m.Exec)
	if err != nil {
		return req, err
	}
	var errs []error
	switch limit := int64(unaryOutputLimit); {
	case req.OutputLimit == nil:
		req.OutputLimit = &limit
	case *req.OutputLimit < 2 || *req.OutputLimit > maxUnaryOutputLimit:
		errs = append(errs, sbxerr.New(sbxerr.Limits, "server.exec",
			"output_limit_bytes of Exec is %d, give 2 to %d, or use Start", *req.OutputLimit, maxUnaryOutputLimit))
	}
	if req.TTY != nil {
		errs = append(errs, sbxerr.New(sbxerr.APIUsage, "server.exec", "a terminal needs Start"))
	}
	if req.Stdin && m.Stdin == nil { // nobody could send it: the command's ID comes with its result
		m.Stdin = []byte{}
	}
	return req, errors.Join(errs...)
}

// errDetachedInput refuses input beside a command that nobody follows.
var errDetachedInput = refuse("a detached command takes its input from SendInput: set exec.stdin, and leave stdin away")

// Start implements ExecServiceHandler.
func (s execs) Start(ctx context.Context, r *connect.Request[caissonv1.StartExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	m := r.Msg
	req, err := s.request(m.Ref, m.Exec)
	if err == nil && m.Detach && m.Stdin != nil {
		err = errDetachedInput
	}
	if err != nil {
		return fail(err)
	}
	if m.Detach {
		exec, err := s.runtime.StartExec(ctx, m.Ref, req)
		if err != nil {
			return fail(err)
		}
		return stream.Send(startedEvent(runtime.Info{ID: exec.SandboxID}, execPB(exec)))
	}
	return fail(follow(ctx, stream, m.Stdin, runtime.AttachOptions{}, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Exec(ctx, m.Ref, req, rio)
	}))
}

// Attach implements ExecServiceHandler.
func (s execs) Attach(ctx context.Context, r *connect.Request[caissonv1.AttachExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	from, err := attachOf(r.Msg)
	if err != nil {
		return fail(err)
	}
	return fail(follow(ctx, stream, nil, from, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Attach(ctx, r.Msg.Ref, r.Msg.Id, from, rio)
	}))
}

// List implements ExecServiceHandler.
func (s execs) List(ctx context.Context, r *connect.Request[caissonv1.ListExecsRequest]) (*connect.Response[caissonv1.ListExecsResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	list, err := s.runtime.Execs(ctx, r.Msg.Ref)
	return reply(&caissonv1.ListExecsResponse{Execs: each(list, execPB)}, err)
}

// Wait implements ExecServiceHandler.
func (s execs) Wait(ctx context.Context, r *connect.Request[caissonv1.WaitExecRequest]) (*connect.Response[caissonv1.Exec], error) {
	if err := errors.Join(checkRef("ref", r.Msg.Ref), checkRef("id", r.Msg.Id)); err != nil {
		return nil, fail(err)
	}
	exec, err := s.runtime.WaitExec(ctx, r.Msg.Ref, r.Msg.Id)
	return reply(execPB(exec), err)
}

// Signal implements ExecServiceHandler.
func (s execs) Signal(ctx context.Context, r *connect.Request[caissonv1.SignalExecRequest]) (*connect.Response[caissonv1.SignalExecResponse], error) {
	m := r.Msg
	signal, err := api.ParseSignal(m.Signal)
	if err := errors.Join(checkRef("ref", m.Ref), checkRef("id", m.Id), err); err != nil {
		return nil, fail(err)
	}
	err = s.runtime.SignalExec(ctx, m.Ref, m.Id, runtime.SignalRequest{Signal: signal, All: m.All})
	return reply(&caissonv1.SignalExecResponse{}, err)
}

// Resize implements ExecServiceHandler.
func (s execs) Resize(ctx context.Context, r *connect.Request[caissonv1.ResizeExecRequest]) (*connect.Response[caissonv1.ResizeExecResponse], error) {
	m := r.Msg
	size, err := winSizeOf(m.Size)
	if err == nil && size == nil {
		err = refuse("there is no size: give rows and columns")
	}
	if err := errors.Join(checkRef("ref", m.Ref), checkRef("id", m.Id), err); err != nil {
		return nil, fail(err)
	}
	return reply(&caissonv1.ResizeExecResponse{}, s.runtime.ResizeExec(ctx, m.Ref, m.Id, *size))
}
