package api

import (
	"context"
	"strconv"
	"syscall"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Output runs a command in the sandbox ref with stdin as all of its input,
// waits for its end, and returns what it wrote. It is the fastest way to run a
// short command: one request and one answer. Of each stream it returns at most
// spec.OutputLimitBytes, which is 64 MiB at most. A nil stdin connects none. The end
// of ctx does not end the command at once.
func (c *Client) Output(ctx context.Context, ref string, spec *caissonv1.ExecSpec, stdin []byte) (*caissonv1.Finished, error) {
	last, err := only(c.openExec(ctx, &caissonv1.StartExecRequest{Ref: ref, Exec: withStdin(spec, stdin != nil), Stdin: stdin, Wait: true}))
	return last.GetFinished(), err
}

// Start starts a command in the background of the sandbox ref. Attach, Wait and
// Logs find it by the ID that is returned.
func (c *Client) Start(ctx context.Context, ref string, spec *caissonv1.ExecSpec) (*caissonv1.Exec, error) {
	last, err := only(c.openExec(ctx, &caissonv1.StartExecRequest{Ref: ref, Exec: spec}))
	return last.GetStarted().GetExec(), err
}

// Execs returns the commands of the sandbox ref, oldest first.
func (c *Client) Execs(ctx context.Context, ref string) ([]*caissonv1.Exec, error) {
	r, err := whole(ctx, c.execs().List, &caissonv1.ListExecsRequest{Ref: ref})
	return r.GetExecs(), err
}

// WaitExec returns when a command has ended. It waits again where its
// connection breaks.
func (c *Client) WaitExec(ctx context.Context, ref, exec string) (*caissonv1.Exec, error) {
	return repeat(ctx, c.retry(), func() (*caissonv1.Exec, error) {
		return call(ctx, c.execs().Wait, &caissonv1.WaitExecRequest{Ref: ref, Id: exec})
	})
}

// SendInput writes to the input of a command and returns when its pipe has taken all of
// it. With an offset it can be repeated.
func (c *Client) SendInput(ctx context.Context, req *caissonv1.SendInputRequest) (*caissonv1.SendInputResponse, error) {
	return call(ctx, c.execs().SendInput, req)
}

// Kill sends a signal to a command; with all, to every process that it started.
func (c *Client) Kill(ctx context.Context, ref, exec string, signal syscall.Signal, all bool) error {
	_, err := call(ctx, c.execs().Signal, &caissonv1.SignalExecRequest{Ref: ref, Id: exec, Signal: strconv.Itoa(int(signal)), All: all})
	return err
}

// Resize changes the size of a command's terminal.
func (c *Client) Resize(ctx context.Context, ref, exec string, size Size) error {
	_, err := call(ctx, c.execs().Resize, &caissonv1.ResizeExecRequest{Ref: ref, Id: exec, Size: size.Message()})
	return err
}
