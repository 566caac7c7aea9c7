package server

import (
	"context"
	"io"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
)

// Run implements SandboxServiceHandler.
func (s sandboxes) Run(ctx context.Context, r *connect.Request[caissonv1.RunRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	req, err := requestOf(r.Msg.Spec)
	if err == nil && r.Msg.Spec.Detach && r.Msg.Stdin != nil {
		err = errUnsentInput
	}
	if err != nil {
		return fail(err)
	}
	if r.Msg.Spec.Detach {
		info, err := s.runtime.Start(ctx, req)
		if err != nil {
			return fail(err)
		}
		return stream.Send(startedEvent(info, nil))
	}
	return fail(follow(ctx, stream, r.Msg.Stdin, runtime.AttachOptions{}, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Run(ctx, req, rio)
	}))
}

// Logs implements SandboxServiceHandler.
func (s sandboxes) Logs(ctx context.Context, r *connect.Request[caissonv1.LogsRequest], stream *connect.ServerStream[caissonv1.ExecEvent]) error {
	o, err := logOptionsOf(r.Msg)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &execEvents{stream: stream, cancel: cancel}
	defer e.close()
	var stdout, stderr io.Writer = e.stdout(o.StdoutOffset), e.stderr(o.StderrOffset)
	if r.Msg.Timestamps || r.Msg.Since != nil {
		stdout, stderr = placed{e.stdout(o.StdoutOffset), r.Msg.Timestamps}, placed{e.stderr(o.StderrOffset), r.Msg.Timestamps}
	}
	err = s.runtime.Logs(ctx, r.Msg.Ref, o, stdout, stderr)
	if cause := context.Cause(ctx); cause != nil {
		return fail(cause) // why the reading failed does not matter then
	}
	return fail(err)
}
