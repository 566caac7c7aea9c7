package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/sbxerr"
)

type execStream = connect.BidiStream[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]

// StreamExec implements ExecServiceHandler.
func (s execs) StreamExec(ctx context.Context, stream *execStream) error {
	first, err := receiveFirst(ctx, stream, s.startTimeout)
	if err != nil {
		return fail(err)
	}
	switch kind := first.Kind.(type) {
	case *caissonv1.StreamExecRequest_Start:
		return fail(s.stream(ctx, kind.Start, stream))
	case *caissonv1.StreamExecRequest_Attach:
		return fail(s.attach(ctx, kind.Attach, stream))
	}
	return fail(sbxerr.New(sbxerr.APIUsage, "server.exec", "the first message of a stream must hold start or attach"))
}

func (s execs) stream(ctx context.Context, m *caissonv1.StreamExecStart, stream *execStream) error {
	req, err := s.request(m.GetRef(), m.GetExec())
	if err != nil {
		return err
	}
	terminal := req.TTY != nil
	return converse(ctx, stream, s.lanes, execDialect, req.Stdin, &terminal, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Exec(ctx, m.GetRef(), req, rio)
	})
}

// FollowExec implements ExecServiceHandler.
func (s execs) FollowExec(ctx context.Context, r *connect.Request[caissonv1.FollowExecRequest], stream *connect.ServerStream[caissonv1.StreamExecResponse]) error {
	req, err := s.request(r.Msg.Ref, r.Msg.Exec)
	if err == nil {
		err = checkGiven(req, r.Msg.Stdin, "StreamExec")
	}
	if err != nil {
		return fail(err)
	}
	return fail(follow(ctx, stream, s.lanes, execReport, given(req, r.Msg.Stdin), func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Exec(ctx, r.Msg.Ref, req, rio)
	}))
}

func (s execs) attach(ctx context.Context, m *caissonv1.Attach, stream *execStream) error {
	if m == nil {
		m = &caissonv1.Attach{}
	}
	options, err := attachOf(m)
	if err != nil {
		return err
	}
	return converse(ctx, stream, s.lanes, execDialect, m.Stdin, nil, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Attach(ctx, m.Ref, m.Exec, options, rio)
	})
}

var execDialect = dialect[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]{report: execReport, verb: "exec", hear: hearExec}

var execReport = report[caissonv1.StreamExecResponse]{
	stdout: stdoutOfExec, stderr: stderrOfExec,
	started: func(_ runtime.Info, exec runtime.ExecInfo) *caissonv1.StreamExecResponse {
		return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_Started{Started: execPB(exec)}}
	},
	moved: func() *caissonv1.StreamExecResponse {
		return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_OutputMoved{OutputMoved: true}}
	},
	taken: func(total int64) *caissonv1.StreamExecResponse {
		return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_StdinTaken{StdinTaken: total}}
	},
	finished: func(r *runtime.Result) *caissonv1.StreamExecResponse {
		return &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_Result{Result: resultOf(r)}}
	},
}

func hearExec(m *caissonv1.StreamExecRequest) inbound {
	switch kind := m.Kind.(type) {
	case *caissonv1.StreamExecRequest_Stdin:
		return inbound{input: &kind.Stdin}
	case *caissonv1.StreamExecRequest_CloseStdin:
		return inbound{closeInput: true}
	case *caissonv1.StreamExecRequest_Signal:
		return inbound{signal: &kind.Signal}
	case *caissonv1.StreamExecRequest_Resize:
		return inbound{resize: orNoSize(kind.Resize)}
	case *caissonv1.StreamExecRequest_Start:
		return inbound{again: "start"}
	case *caissonv1.StreamExecRequest_Attach:
		return inbound{again: "attach"}
	}
	return inbound{}
}
