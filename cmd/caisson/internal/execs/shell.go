package execs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const shellLong = `Open an interactive shell in a running sandbox: bash where the image has it, else sh. This
is caisson exec -it SANDBOX with that shell.`

// bestShell becomes bash where there is one.
const bestShell = "command -v bash >/dev/null && exec bash; exec sh"

func ShellCommand(a *cli.App) *cobra.Command {
	var user, workdir, detachKeys string
	cmd := &cobra.Command{
		Use:               "shell [flags] SANDBOX",
		Short:             "Open a shell in a running sandbox",
		Long:              shellLong,
		Example:           "  caisson shell agent\n  caisson shell -w /tmp agent",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			p.NotEmpty("user")
			spec := &caissonv1.ExecSpec{Args: []string{"/bin/sh", "-c", bestShell}, User: user, Workdir: workdir, Stdin: true, Tty: cli.DefaultSize.Message()}
			a.InheritTERM(spec, nil)
			if err := p.End(spec); err != nil {
				return err
			}
			keys, err := parseDetachKeys(detachKeys)
			if err != nil {
				return err
			}
			t := Task{Terminal: true, Stdin: true, detachKeys: keys, Consequence: "the command is killed", Hints: execHints(nil), end: endCommand}
			t.Run = func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error) {
				spec.Tty = size
				return t.exec(ctx, c, args[0], spec, rio)
			}
			return Foreground(a, cmd.Context(), t)
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "`USER`: name, uid or uid:gid (default: the sandbox's)")
	cmd.Flags().StringVarP(&workdir, "workdir", "w", "", "working directory `DIR` (default: the workspace, else the image's)")
	leaveKeysFlag(cmd, &detachKeys)
	return cmd
}
