package api

import (
	"context"
	"errors"
	"syscall"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/sbxerr"
)

// killTimeout bounds the end of a command whose caller is leaving.
const killTimeout = 2 * time.Second

// Exec executes a command in the foreground of the sandbox ref and returns how
// it ended. The end of ctx, or an error of the caller's own writers (wrapped
// under SBX-804), kills it; where ctx has ended and it cannot be killed, the error
// is why.
//
// A connection that breaks while the command runs is made again, for as long
// as the client's Reconnect says, and the streams continue where they were: no
// byte of output is lost or doubled. Input is never sent twice: where some of
// it was not acknowledged when the connection broke, that is an error
// (SBX-803), and the command runs on for another Attach.
func (c *Client) Exec(ctx context.Context, ref string, spec *caissonv1.ExecSpec, rio IO) (*caissonv1.Result, error) {
	f := c.foreground(ref, rio)
	if saysNoMore(spec, rio) {
		f.follow = follow(c, f, c.followExec, (*caissonv1.StreamExecRequest).GetSignal)
	}
	result, err := f.run(ctx, &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Start{
		Start: &caissonv1.StreamExecStart{Ref: ref, Exec: withStdin(spec, rio.Stdin != nil)},
	}})
	if f.exec == "" || err == nil || ctx.Err() == nil && !errors.Is(err, sbxerr.ClientIO) {
		return result, err
	}
	if left := c.End(ctx, ref, f.exec); left != nil && ctx.Err() != nil {
		return nil, left
	}
	return nil, err
}

// End kills a command and all that it started, for a caller who is leaving: also when
// ctx has ended. One that has ended by itself is no error. Where it fails, as in a
// sandbox that is paused, the daemon's attach_grace ends a command of the foreground.
func (c *Client) End(ctx context.Context, ref, exec string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	err := c.Kill(ctx, ref, exec, syscall.SIGKILL, true)
	if errors.Is(err, sbxerr.State) || errors.Is(err, sbxerr.NotFound) || errors.Is(err, sbxerr.ExecNotFound) {
		return nil
	}
	return err
}

// Attach connects the caller with a command that runs, or ran, in the sandbox
// ref, and returns how it ended: with the end of ctx, the command runs on. The
// offsets are the bytes of each stream that the caller has had already. Broken
// connections are as with Exec.
func (c *Client) Attach(ctx context.Context, ref, exec string, o AttachOptions, rio IO) (*caissonv1.Result, error) {
	f := c.foreground(ref, rio)
	f.exec = exec
	f.out.offset, f.errs.offset = o.StdoutOffset, o.StderrOffset
	return f.run(ctx, f.attach(exec, o.StdoutOffset, o.StderrOffset))
}

// AttachOptions say where in the streams of a command the caller stands, in
// bytes.
type AttachOptions struct{ StdoutOffset, StderrOffset int64 }

func (c *Client) foreground(ref string, rio IO) *foreground[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse] {
	return &foreground[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]{
		dialect: execDialect, open: c.execs().StreamExec, openLane: c.openLane, rio: rio, retry: c.retry(),
		attach: func(exec string, stdout, stderr int64) *caissonv1.StreamExecRequest {
			return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Attach{Attach: &caissonv1.Attach{
				Ref: ref, Exec: exec, StdoutOffset: stdout, StderrOffset: stderr, Stdin: rio.Stdin != nil,
			}}}
		},
	}
}

var execDialect = dialect[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]{
	stdin: func(p []byte) *caissonv1.StreamExecRequest {
		return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Stdin{Stdin: p}}
	},
	closeStdin: func() *caissonv1.StreamExecRequest {
		return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_CloseStdin{CloseStdin: true}}
	},
	signal: func(n int32) *caissonv1.StreamExecRequest {
		return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Signal{Signal: n}}
	},
	resize: func(s *caissonv1.WinSize) *caissonv1.StreamExecRequest {
		return &caissonv1.StreamExecRequest{Kind: &caissonv1.StreamExecRequest_Resize{Resize: s}}
	},
	hear: hearExec,
}

func hearExec(m *caissonv1.StreamExecResponse) event {
	switch kind := m.Kind.(type) {
	case *caissonv1.StreamExecResponse_Started:
		return event{started: kind.Started}
	case *caissonv1.StreamExecResponse_Stdout:
		return event{stdout: kind.Stdout}
	case *caissonv1.StreamExecResponse_Stderr:
		return event{stderr: kind.Stderr}
	case *caissonv1.StreamExecResponse_StdoutSkipped:
		return event{stdoutSkipped: kind.StdoutSkipped}
	case *caissonv1.StreamExecResponse_StderrSkipped:
		return event{stderrSkipped: kind.StderrSkipped}
	case *caissonv1.StreamExecResponse_StdinTaken:
		return event{taken: kind.StdinTaken}
	case *caissonv1.StreamExecResponse_OutputMoved:
		return event{moved: kind.OutputMoved}
	case *caissonv1.StreamExecResponse_Result:
		return event{result: orEmpty(kind.Result)}
	}
	return event{}
}
