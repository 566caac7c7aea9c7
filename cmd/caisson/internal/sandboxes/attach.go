package sandboxes

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// AttachWorkspaceCommand is the verb attach-workspace.
func AttachWorkspaceCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach-workspace SANDBOX DIR[:ro|:cow]",
		Short: "Attach a directory of the host to a sandbox that lives",
		Long: "Mount DIR on /workspace of a running or paused sandbox that has no workspace of the host, without a\n" +
			"restart. Its own /workspace must be empty. A sandbox with a disk can have it copy-on-write, DIR:cow.\n" +
			"Processes whose working directory is /workspace keep the old one. A restart makes a sandbox without it.",
		Example:           "  caisson attach-workspace agent .\n  caisson attach-workspace agent .:cow",
		Args:              cli.Exactly("SANDBOX", "DIR"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := specflags.Workspace("DIR", args[1])
			if err != nil {
				return err
			}
			r := &caissonv1.AttachWorkspaceRequest{Ref: args[0], Workspace: w}
			return cli.Ask(cmd.Context(), a, (*api.Client).AttachWorkspace, r, func(s *caissonv1.Sandbox) error { return printSandbox(a, s) })
		},
	}
	a.OutputFlags(cmd)
	return cmd
}
