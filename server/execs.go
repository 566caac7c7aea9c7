package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
)

// maxFinishedOutput is the most of each stream in a Finished, in bytes: it is one message.
const maxFinishedOutput = 64 << 20

// execs serves ExecService.
type execs struct {
	runtime Execs
	answers *amounts // bytes that calls with wait hold
}

// errUnsentInput refuses input beside a command that nobody follows.
var errUnsentInput = refuse("a command that runs on by itself takes its input from SendInput: set exec.stdin, and leave stdin away")

// start reads what to run.
func (execs) start(m *caissonv1.StartExecRequest) (plan.ExecRequest, error) {
	if err := checkRef("ref", m.Ref); err != nil {
		return plan.ExecRequest{}, err
	}
	if m.Exec == nil {
		return plan.ExecRequest{}, sbxerr.New(sbxerr.APIUsage, "server.exec", "there is no exec: it says what to run")
	}
	req, err := execOf(m.Exec)
	errs := []error{err}
	switch {
	case m.Wait && m.Attach:
		errs = append(errs, refuse("wait and attach exclude each other"))
	case m.Wait && req.TTY != nil:
		errs = append(errs, refuse("a terminal needs attach instead of wait"))
	case !m.Wait && !m.Attach && m.Stdin != nil:
		errs = append(errs, errUnsentInput)
	}
	if n := req.OutputLimit; m.Wait && n != nil && (*n < 2 || *n > maxFinishedOutput) {
		errs = append(errs, sbxerr.New(sbxerr.Limits, "server.exec",
			"output_limit_bytes is %d, with wait give 2 to %d, or use attach", *n, maxFinishedOutput))
	}
	return req, errors.Join(errs...)
}

// Start implements ExecServiceHandler.
func (s execs) Start(ctx context.Context, r *connect.Request[caissonv1.StartExecRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	m := r.Msg
	req, err := s.start(m)
	switch {
	case err != nil:
		return fail(err)
	case m.Wait:
		return fail(s.finish(ctx, m, req, stream))
	case m.Attach:
		return fail(follow(ctx, stream, m.Stdin, runtime.AttachOptions{}, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
			return s.runtime.Exec(ctx, m.Ref, req, rio)
		}))
	}
	exec, err := s.runtime.StartExec(ctx, m.Ref, req)
	if err != nil {
		return fail(err)
	}
	return stream.Send(startedEvent(runtime.Info{ID: exec.SandboxID}, execPB(exec)))
}

// finish runs a command and sends how it ended.
func (s execs) finish(ctx context.Context, m *caissonv1.StartExecRequest, req plan.ExecRequest, stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	limit := int64(settings.DefaultOutputLimit)
	plan.Override(&limit, req.OutputLimit)
	out, kept := &caissonv1.Finished{}, newFinishedOutput(ctx, s.answers, limit)
	defer kept.release()
	rio := runtime.IO{
		Stdin: m.Stdin, Stdout: kept.stdout, Stderr: kept.stderr,
		Started: func(_ runtime.Info, e runtime.ExecInfo) { out.Id = e.ID },
	}
	if req.Stdin && rio.Stdin == nil { // nobody could send it: the command's ID comes with its result
		rio.Stdin = []byte{}
	}
	result, err := s.runtime.Exec(ctx, m.Ref, req, rio)
	if err != nil {
		return err
	}
	out.Result = resultOf(result)
	out.Result.Warnings = slices.Concat(out.Result.Warnings, kept.warning())
	out.Stdout, out.StdoutSkipped = kept.stdout.Bytes(result.StdoutBytes)
	out.Stderr, out.StderrSkipped = kept.stderr.Bytes(result.StderrBytes)
	return stream.Send(&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Finished{Finished: out}})
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
	if err != nil {
		return nil, fail(err)
	}
	list, next, err := page("execs", list, func(e runtime.ExecInfo) string { return fmt.Sprintf("%10s", e.ID) }, r.Msg) // a number
	return reply(&caissonv1.ListExecsResponse{Execs: each(list, execPB), Next: next}, err)
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
