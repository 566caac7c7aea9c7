package execs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const execLong = `Run a command in a running sandbox. Exit with the command's exit code, as run does. If the
daemon restarts, the command keeps running and its output continues here without a gap.

Ctrl-C and SIGTERM go to the command. A second one, or 10 seconds, kills it. So does a
closed terminal: a command that is to go on is started with -d, and seen with attach. With
-it, the keys of --detach-keys leave it running too.`

func ExecCommand(a *cli.App) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:               "exec [flags] SANDBOX -- CMD [ARG...]",
		Short:             "Run a command in a running sandbox",
		Long:              execLong,
		Example:           "  caisson exec agent -- make test\n  caisson exec -it agent -- sh\n  caisson exec --shell agent < script.sh",
		Args:              cli.AtLeastOne("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(cmd, args[1:], a)
			if err != nil {
				return err
			}
			a.InheritTERM(spec, spec.Env)
			if f.Detach {
				return execDetached(a, cmd.Context(), args[0], spec)
			}
			t, err := foreground(&f.CommandFlags, spec, "the command is killed", execHints(spec.Limits))
			if err != nil {
				return err
			}
			t.end = endCommand
			t.Run = func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
				spec.Tty = size
				return t.exec(ctx, c, args[0], spec, rio)
			}
			return Foreground(a, cmd.Context(), t)
		},
	}
	f.register(cmd)
	leaveKeysFlag(cmd, &f.DetachKeys)
	StreamFlags(a, cmd)
	return cmd
}

// execDetached runs spec in the background of the sandbox ref.
func execDetached(a *cli.App, ctx context.Context, ref string, spec *caissonv1.ExecSpec) error {
	return a.With(ctx, func(client *api.Client) error {
		exec, err := client.Start(ctx, ref, spec)
		if err != nil {
			return err
		}
		if a.Output == cli.FormatJSON {
			return a.PrintJSON(exec)
		}
		return a.PrintLine("%s", exec.GetId())
	})
}
