package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
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
func (f *commandFlags) foreground(spec *caissonv1.ExecSpec, consequence string, h hints) (task, error) {
	keys, err := parseDetachKeys(f.detachKeys)
	if err != nil {
		return task{}, err
	}
	t := task{
		terminal: f.terminal, stdin: f.interactive, limit: spec.OutputLimitBytes, timeout: spec.Timeout,
		consequence: consequence, hints: h,
	}
	if f.terminal && f.interactive {
		t.detachKeys = keys
	}
	return t, nil
}

// exec executes spec in the sandbox ref. With detach keys the command is started in the
// background, so that it survives its caller.
func (t task) exec(ctx context.Context, c *api.Client, ref string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error) {
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
func (t task) follow(ctx context.Context, c *api.Client, e *caissonv1.Exec, rio api.IO) (*caissonv1.Result, error) {
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
func (a *App) sayDetached(e *caissonv1.Exec) {
	a.progress(fmt.Sprintf("caisson: detached; the command runs on: caisson attach -it %s %s", e.GetSandboxId(), e.GetId()))
}

// hungUp is the exit code of a call whose terminal was closed.
const hungUp = exitSignal + int(syscall.SIGHUP)
