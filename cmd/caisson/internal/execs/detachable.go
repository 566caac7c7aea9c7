package execs

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// endTask ends the command that a caller started and does not wait for.
type endTask func(ctx context.Context, c *api.Client, e *caissonv1.Exec) error

// endCommand kills a command.
func endCommand(ctx context.Context, c *api.Client, e *caissonv1.Exec) error {
	return c.End(ctx, e.SandboxId, e.Id)
}

// leaveKeysFlag registers --detach-keys of a call that starts a command. There are none by
// default: a command that may be left running also outlives a client that is killed.
func leaveKeysFlag(cmd *cobra.Command, keys *string) {
	cmd.Flags().StringVar(keys, "detach-keys", "", "leave the command running when `KEYS` are typed, such as "+defaultDetachKeys)
}

// foreground is spec as a command in the foreground. Detach keys leave it if a terminal is its input.
func foreground(f *specflags.CommandFlags, spec *caissonv1.ExecSpec, consequence string, h hints) (Task, error) {
	keys, err := parseDetachKeys(f.DetachKeys)
	if err != nil {
		return Task{}, err
	}
	t := Task{
		Terminal: f.Terminal, Stdin: f.Interactive, Limit: spec.OutputLimitBytes, timeout: spec.Timeout,
		Consequence: consequence, Hints: h,
	}
	if f.Terminal && f.Interactive {
		t.detachKeys = keys
	}
	return t, nil
}

// exec executes spec in the sandbox ref. With detach keys the command is started in the
// background, so that it survives its caller.
func (t Task) exec(ctx context.Context, c *api.Client, ref string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error) {
	if t.detachKeys == nil {
		return c.Exec(ctx, ref, spec, rio)
	}
	e, err := c.Start(context.WithoutCancel(ctx), ref, spec)
	if err != nil {
		return nil, err
	}
	return t.follow(ctx, c, e, rio)
}

// follow passes the streams of e, which runs in the background, until it ends. A caller that
// leaves for another reason than the detach keys ends it.
func (t Task) follow(ctx context.Context, c *api.Client, e *caissonv1.Exec, rio api.IO) (*caissonv1.Result, error) {
	result, err := c.Attach(ctx, e.SandboxId, e.Id, api.AttachOptions{OwnInput: true}, rio)
	if err == nil || errors.Is(context.Cause(ctx), errDetached) {
		return result, err
	}
	if left := t.end(ctx, c, e); left != nil && ctx.Err() != nil {
		return nil, left
	}
	return nil, err
}

// sayDetached says how to come back to a command that runs on.
func sayDetached(a *cli.App, e *caissonv1.Exec) {
	a.Progress(fmt.Sprintf("caisson: detached; the command runs on: caisson attach -it %s %s", e.GetSandboxId(), e.GetId()))
}

// hungUp is the exit code of a call whose terminal was closed.
const hungUp = cli.ExitSignal + int(syscall.SIGHUP)
