package server

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// What Exec keeps of each stream, in bytes: it is answered in one message.
const (
	unaryOutputLimit    = 1 << 20
	maxUnaryOutputLimit = 64 << 20
)

// execs serves ExecService.
type execs struct {
	runtime      Execs
	startTimeout time.Duration // for the first message of a stream
	lanes        *lanes
}

// request reads what Exec, StreamExec and StartExec have in common.
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
		Stdin: given(req, r.Msg.Stdin), Stdout: stdout, Stderr: stderr,
		Started: func(_ runtime.Info, e runtime.ExecInfo) { out.Exec = e.ID },
	}
	result, err := s.runtime.Exec(ctx, r.Msg.Ref, req, rio)
	if err != nil {
		return nil, fail(err)
	}
	out.Result = resultOf(result)
	out.Stdout, out.Stderr = stdout.Bytes(result.StdoutBytes), stderr.Bytes(result.StderrBytes)
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
			"output_limit_bytes of Exec is %d, give 2 to %d, or use StreamExec", *req.OutputLimit, maxUnaryOutputLimit))
	}
	return req, errors.Join(append(errs, checkGiven(req, m.Stdin, "StreamExec"))...)
}

func (s execs) StartExec(ctx context.Context, r *connect.Request[caissonv1.StartExecRequest]) (*connect.Response[caissonv1.StartExecResponse], error) {
	req, err := s.request(r.Msg.Ref, r.Msg.Exec)
	if err != nil {
		return nil, fail(err)
	}
	exec, err := s.runtime.StartExec(ctx, r.Msg.Ref, req)
	return reply(&caissonv1.StartExecResponse{Exec: execPB(exec)}, err)
}

func (s execs) ListExecs(ctx context.Context, r *connect.Request[caissonv1.ListExecsRequest]) (*connect.Response[caissonv1.ListExecsResponse], error) {
	if err := checkRef("ref", r.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	list, err := s.runtime.Execs(ctx, r.Msg.Ref)
	return reply(&caissonv1.ListExecsResponse{Execs: each(list, execPB)}, err)
}

func (s execs) WaitExec(ctx context.Context, r *connect.Request[caissonv1.WaitExecRequest]) (*connect.Response[caissonv1.WaitExecResponse], error) {
	if err := errors.Join(checkRef("ref", r.Msg.Ref), checkRef("exec", r.Msg.Exec)); err != nil {
		return nil, fail(err)
	}
	exec, err := s.runtime.WaitExec(ctx, r.Msg.Ref, r.Msg.Exec)
	return reply(&caissonv1.WaitExecResponse{Exec: execPB(exec)}, err)
}

func (s execs) SignalExec(ctx context.Context, r *connect.Request[caissonv1.SignalExecRequest]) (*connect.Response[caissonv1.SignalExecResponse], error) {
	m := r.Msg
	if err := errors.Join(checkRef("ref", m.Ref), checkRef("exec", m.Exec), checkSignal(m.Signal)); err != nil {
		return nil, fail(err)
	}
	err := s.runtime.SignalExec(ctx, m.Ref, m.Exec, runtime.SignalRequest{Signal: syscall.Signal(m.Signal), All: m.All})
	return reply(&caissonv1.SignalExecResponse{}, err)
}
