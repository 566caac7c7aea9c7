package api

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Run makes a sandbox for one command, executes it in the foreground and
// returns how it ended. The sandbox ends with ctx, and with the connection: a
// run that breaks is not continued. An error of the caller's own writers is
// wrapped under SBX-804 and ends the sandbox too.
func (c *Client) Run(ctx context.Context, spec *caissonv1.RunSpec, rio IO) (*caissonv1.Result, error) {
	spec = proto.CloneOf(spec)
	spec.Detach, spec.Exec = false, withStdin(spec.Exec, rio.Stdin != nil)
	f := &foreground[caissonv1.RunRequest, caissonv1.RunResponse]{
		dialect: runDialect, open: c.sandboxes().Run, openLane: c.openLane, rio: rio, retry: c.retry(),
	}
	if saysNoMore(spec.Exec, rio) {
		f.follow = follow(c, f, c.followRun, (*caissonv1.RunRequest).GetSignal)
	}
	return f.run(ctx, &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Start{Start: spec}})
}

// RunDetached executes spec in a sandbox that outlives the call.
func (c *Client) RunDetached(ctx context.Context, spec *caissonv1.RunSpec) (*caissonv1.Started, error) {
	spec = proto.CloneOf(spec)
	spec.Detach = true
	stream, err := c.sandboxes().FollowRun(ctx, connect.NewRequest(&caissonv1.FollowRunRequest{Spec: spec}))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var started *caissonv1.Started
	for stream.Receive() { // to the end: a daemon that fails after all says so
		started = stream.Msg().GetStarted()
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if started == nil {
		return nil, errNoResult
	}
	return started, nil
}

// withStdin is spec with or without an input.
func withStdin(spec *caissonv1.ExecSpec, stdin bool) *caissonv1.ExecSpec {
	if spec.GetStdin() == stdin && spec != nil {
		return spec
	}
	if spec == nil {
		return &caissonv1.ExecSpec{Stdin: stdin}
	}
	spec = proto.CloneOf(spec)
	spec.Stdin = stdin
	return spec
}

var runDialect = dialect[caissonv1.RunRequest, caissonv1.RunResponse]{
	stdin: func(p []byte) *caissonv1.RunRequest {
		return &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Stdin{Stdin: p}}
	},
	closeStdin: func() *caissonv1.RunRequest {
		return &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_CloseStdin{CloseStdin: true}}
	},
	signal: func(n int32) *caissonv1.RunRequest {
		return &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Signal{Signal: n}}
	},
	resize: func(s *caissonv1.WinSize) *caissonv1.RunRequest {
		return &caissonv1.RunRequest{Kind: &caissonv1.RunRequest_Resize{Resize: s}}
	},
	hear: hearRun,
}

func hearRun(m *caissonv1.RunResponse) event {
	switch kind := m.Kind.(type) {
	case *caissonv1.RunResponse_Started:
		s := kind.Started
		return event{started: &caissonv1.Exec{Id: s.GetExec(), SandboxId: s.GetId(), Pid: s.GetPid(), Args: s.GetArgs()}}
	case *caissonv1.RunResponse_Stdout:
		return event{stdout: kind.Stdout}
	case *caissonv1.RunResponse_Stderr:
		return event{stderr: kind.Stderr}
	case *caissonv1.RunResponse_StdoutSkipped:
		return event{stdoutSkipped: kind.StdoutSkipped}
	case *caissonv1.RunResponse_StderrSkipped:
		return event{stderrSkipped: kind.StderrSkipped}
	case *caissonv1.RunResponse_StdinTaken:
		return event{taken: kind.StdinTaken}
	case *caissonv1.RunResponse_OutputMoved:
		return event{moved: kind.OutputMoved}
	case *caissonv1.RunResponse_Result:
		return event{result: orEmpty(kind.Result)}
	}
	return event{}
}

func orEmpty(r *caissonv1.Result) *caissonv1.Result {
	if r == nil {
		return &caissonv1.Result{}
	}
	return r
}
