package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

type runStream = connect.BidiStream[caissonv1.RunRequest, caissonv1.RunResponse]

// Run implements SandboxServiceHandler.
func (s sandboxes) Run(ctx context.Context, stream *runStream) error {
	first, err := receiveFirst(ctx, stream, s.startTimeout)
	if err != nil {
		return fail(err)
	}
	spec := first.GetStart()
	if spec == nil {
		return fail(sbxerr.New(sbxerr.APIUsage, "server.run", "the first message of a run must hold start"))
	}
	req, err := requestOf(spec)
	if err != nil {
		return fail(err)
	}
	if spec.Detach {
		return fail(s.start(ctx, req, stream))
	}
	terminal := req.Exec.TTY != nil
	return fail(converse(ctx, stream, s.lanes, runDialect, req.Exec.Stdin, &terminal, func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Run(ctx, req, rio)
	}))
}

// FollowRun implements SandboxServiceHandler.
func (s sandboxes) FollowRun(ctx context.Context, r *connect.Request[caissonv1.FollowRunRequest], stream *connect.ServerStream[caissonv1.RunResponse]) error {
	req, err := requestOf(r.Msg.Spec)
	if err == nil {
		err = checkGiven(req.Exec, r.Msg.Stdin, "Run")
	}
	if err != nil {
		return fail(err)
	}
	if r.Msg.Spec.Detach {
		return fail(s.start(ctx, req, stream))
	}
	return fail(follow(ctx, stream, s.lanes, runReport, given(req.Exec, r.Msg.Stdin), func(ctx context.Context, rio runtime.IO) (*runtime.Result, error) {
		return s.runtime.Run(ctx, req, rio)
	}))
}

func (s sandboxes) start(ctx context.Context, req plan.Request, stream replies[caissonv1.RunResponse]) error {
	info, err := s.runtime.Start(ctx, req)
	if err != nil {
		return err
	}
	return stream.Send(runStarted(info, runtime.ExecInfo{Args: info.Args}))
}

var runDialect = dialect[caissonv1.RunRequest, caissonv1.RunResponse]{report: runReport, verb: "run", hear: hearRun}

var runReport = report[caissonv1.RunResponse]{
	started: runStarted, stdout: stdoutOfRun, stderr: stderrOfRun,
	moved: func() *caissonv1.RunResponse {
		return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_OutputMoved{OutputMoved: true}}
	},
	taken: func(total int64) *caissonv1.RunResponse {
		return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_StdinTaken{StdinTaken: total}}
	},
	finished: func(r *runtime.Result) *caissonv1.RunResponse {
		return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Result{Result: resultOf(r)}}
	},
}

func runStarted(info runtime.Info, exec runtime.ExecInfo) *caissonv1.RunResponse {
	return &caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Started{
		Started: &caissonv1.Started{Id: info.ID, Name: info.Name, Exec: exec.ID, Pid: int64(exec.PID), Args: exec.Args},
	}}
}

func hearRun(m *caissonv1.RunRequest) inbound {
	switch kind := m.Kind.(type) {
	case *caissonv1.RunRequest_Stdin:
		return inbound{input: &kind.Stdin}
	case *caissonv1.RunRequest_CloseStdin:
		return inbound{closeInput: true}
	case *caissonv1.RunRequest_Signal:
		return inbound{signal: &kind.Signal}
	case *caissonv1.RunRequest_Resize:
		return inbound{resize: orNoSize(kind.Resize)}
	case *caissonv1.RunRequest_Start:
		return inbound{again: "start"}
	}
	return inbound{}
}

// orNoSize makes a size that is absent one that is refused.
func orNoSize(s *caissonv1.WinSize) *caissonv1.WinSize {
	if s == nil {
		return &caissonv1.WinSize{}
	}
	return s
}
