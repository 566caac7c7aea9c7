package api

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
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
// byte of output or input is lost or doubled.
func (c *Client) Exec(ctx context.Context, ref string, spec *caissonv1.ExecSpec, rio IO) (*caissonv1.Result, error) {
	f := c.foreground(rio)
	f.resume, f.sandbox = true, ref
	result, err := f.run(ctx, func(ctx context.Context) (*events, error) {
		return c.openExec(ctx, &caissonv1.StartExecRequest{Ref: ref, Exec: withStdin(spec, rio.Stdin != nil), Attach: true})
	})
	if f.exec == "" || err == nil || ctx.Err() == nil && !errors.Is(err, sbxerr.ClientIO) {
		return result, err
	}
	if left := c.End(ctx, ref, f.exec); left != nil && ctx.Err() != nil {
		return nil, left
	}
	return nil, err
}

func (c *Client) openExec(ctx context.Context, req *caissonv1.StartExecRequest) (*events, error) {
	return c.execs().Start(ctx, connect.NewRequest(req))
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

// Attach attaches the caller to a command that runs, or ran, in the sandbox
// ref, and returns how it ended: with the end of ctx, the command runs on. The
// offsets are the bytes of each stream that the caller has had already. Broken
// connections are as with Exec, but for input that was on its way: as others may
// send some too, it is not sent again (SBX-803), unless o.OwnInput is set.
func (c *Client) Attach(ctx context.Context, ref, exec string, o AttachOptions, rio IO) (*caissonv1.Result, error) {
	f := c.foreground(rio)
	f.resume, f.shared = true, !o.OwnInput
	f.sandbox, f.exec, f.out.offset, f.errs.offset = ref, exec, o.StdoutOffset, o.StderrOffset
	return f.run(ctx, f.attach)
}

// AttachOptions say where in the streams of a command the caller stands, in
// bytes.
type AttachOptions struct {
	StdoutOffset, StderrOffset int64
	// OwnInput says that this caller sends all of the command's input, from its first byte.
	// Then input that was on its way is sent again, as with Exec.
	OwnInput bool
}
