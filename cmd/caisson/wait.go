package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

const waitLong = `Block until a sandbox, or one of its commands, ends. Exit with the exit code of the
command. Without EXEC that is the command of caisson run, if the sandbox has one. This
works too if the sandbox is removed in the meantime.`

func (a *app) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "wait SANDBOX [EXEC]",
		Short:             "Block until a sandbox or a command ends",
		Long:              waitLong,
		Example:           "  caisson wait job\n  caisson wait agent 3",
		Args:              waitArgs,
		ValidArgsFunction: a.completeExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, wait, args, func(end ended) error {
				if a.output == formatJSON {
					if err := a.printJSON(end.view); err != nil {
						return err
					}
				}
				if code := end.result.GetExitCode(); code != 0 {
					return exitStatus(code)
				}
				return nil
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func waitArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exactly("SANDBOX", "EXEC")(cmd, args)
	}
	return exactly("SANDBOX")(cmd, args)
}

// ended is what was waited for, and how its command ended.
type ended struct {
	view   any
	result *caissonv1.Result
}

func wait(c *api.Client, ctx context.Context, args []string) (ended, error) {
	if len(args) == 2 {
		e, err := c.WaitExec(ctx, args[0], args[1])
		return ended{execViewOf(e), e.GetResult()}, err
	}
	s, err := c.Wait(ctx, args[0])
	if err == nil && s.GetResult() == nil && len(s.GetArgs()) > 0 { // no exit code is not 0
		err = sbxerr.New(sbxerr.State, "caisson.wait", "sandbox %s ended, and it is not known how its command did", s.GetName())
	}
	return ended{sandboxViewOf(s), s.GetResult()}, err
}
