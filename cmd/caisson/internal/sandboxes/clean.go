package sandboxes

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func CleanCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "clean [flags] SANDBOX",
		Short:             "End all processes of a sandbox and empty its /tmp",
		Long:              "End all processes of a running sandbox, with what they listen on, and empty its /tmp. Other files\nstay.",
		Example:           "  caisson clean agent",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).Clean, args[0], func(r *caissonv1.CleanResponse) error {
				if a.Output == cli.FormatJSON {
					return a.PrintJSON(r)
				}
				return a.PrintLine("ended %d processes, removed %d files", r.Processes, r.Files)
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}
