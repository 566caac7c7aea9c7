package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const execLong = `Run a command in a running sandbox. Exit with the command's exit code, as run does. If the
daemon restarts, the command keeps running and its output continues here without a gap.

Ctrl-C and SIGTERM go to the command. A second one, or 10 seconds, kills it.`

func (a *app) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:               "exec [flags] SANDBOX -- CMD [ARG...]",
		Short:             "Run a command in a running sandbox",
		Long:              execLong,
		Example:           "  caisson exec agent -- make test\n  caisson exec -it agent -- sh\n  caisson exec --shell agent < script.sh",
		Args:              atLeastOne("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(cmd, args[1:], a)
			if err != nil {
				return err
			}
			a.inheritTERM(spec, spec.Env)
			if f.detach {
				return a.execDetached(cmd.Context(), args[0], spec)
			}
			return a.foreground(cmd.Context(), task{
				terminal: f.terminal, stdin: f.interactive, limit: spec.OutputLimitBytes, consequence: "the command is killed", hints: execHints(spec.Limits), ends: true, timeout: spec.Timeout,
				run: func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
					spec.Tty = size
					return c.Exec(ctx, args[0], spec, rio)
				},
			})
		},
	}
	f.register(cmd)
	a.streamFlags(cmd)
	return cmd
}

// execDetached runs spec in the background of the sandbox ref.
func (a *app) execDetached(ctx context.Context, ref string, spec *caissonv1.ExecSpec) error {
	return a.with(ctx, func(client *api.Client) error {
		exec, err := client.Start(ctx, ref, spec)
		if err != nil {
			return err
		}
		if a.output == formatJSON {
			return a.printJSON(execViewOf(exec))
		}
		return a.printLine("%s", exec.GetId())
	})
}
