package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
)

// report is how the messages are made that tell of a command.
type report[Res any] struct {
	started  func(runtime.Info, runtime.ExecInfo) *Res
	stdout   output[Res]
	stderr   output[Res]
	taken    func(total int64) *Res
	moved    func() *Res
	finished func(*runtime.Result) *Res
}

// runner runs a command, or attaches to one, and returns when it has ended.
type runner func(context.Context, runtime.IO) (*runtime.Result, error)

// account tells the caller of one foreground command what becomes of it.
type account[Res any] struct {
	report[Res]
	outlet[Res]
}

// replies are the messages that answer one call.
type replies[Res any] interface {
	Send(*Res) error
	ResponseHeader() http.Header
}

func newAccount[Res any](r report[Res], to replies[Res], cancel context.CancelCauseFunc) account[Res] {
	return account[Res]{r, outlet[Res]{stream: to, cancel: cancel, moved: r.moved}}
}

// tell runs a command with rio, whose output goes to the caller, and tells of its
// result last.
func (a *account[Res]) tell(ctx context.Context, ls *lanes, rio runtime.IO, run runner) error {
	defer a.close()
	defer ls.offer(ctx, a.stream.ResponseHeader(), a.join)()
	rio.Stdout, rio.Stderr = writer[Res]{a.stdout, a.sendOutput}, writer[Res]{a.stderr, a.sendOutput}
	result, err := run(ctx, rio)
	if err != nil {
		return err
	}
	if err := a.endOutput(); err != nil {
		return err
	}
	return a.send(a.finished(result))
}

// follow connects run with a caller who says no more, until the command has ended.
func follow[Res any](ctx context.Context, stream *connect.ServerStream[Res], ls *lanes, r report[Res], stdin io.Reader, run runner) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := newAccount(r, stream, cancel)
	return a.tell(ctx, ls, runtime.IO{Stdin: stdin, Started: func(info runtime.Info, exec runtime.ExecInfo) {
		_ = a.send(a.started(info, exec)) // send cancels the run itself
	}}, run)
}

// given is the input that a request held, for a command that is to have one.
func given(exec plan.ExecRequest, stdin []byte) io.Reader {
	if !exec.Stdin {
		return nil
	}
	return bytes.NewReader(stdin)
}

// checkGiven refuses what a command cannot have whose caller says no more than its
// request: call is the one that is for it.
func checkGiven(exec plan.ExecRequest, stdin []byte, call string) error {
	var errs []error
	if len(stdin) > 0 && !exec.Stdin {
		errs = append(errs, sbxerr.New(sbxerr.APIUsage, "server.exec", "there is stdin, but exec.stdin is not set"))
	}
	if exec.TTY != nil {
		errs = append(errs, sbxerr.New(sbxerr.APIUsage, "server.exec", "a terminal needs %s", call))
	}
	return errors.Join(errs...)
}
