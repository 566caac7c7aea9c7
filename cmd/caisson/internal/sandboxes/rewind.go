package sandboxes

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// RewindCommand is the verb rewind.
func RewindCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rewind SANDBOX SNAPSHOT",
		Short: "Put a running sandbox back to a snapshot",
		Long: "Give a running sandbox the files of a snapshot of its own image, without a restart. Its commands\n" +
			"end first, and the answer says which. Its ID, name, ports, network policy and mounts of the host\n" +
			"stay. What was written since the snapshot is lost; /tmp and other tmpfs become empty.",
		Example: "  caisson snapshot create agent --name before\n  caisson exec agent -- rm -rf /workspace/src\n  caisson rewind agent before",
		Args:    cli.Exactly("SANDBOX", "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &caissonv1.RewindRequest{Ref: args[0], Snapshot: args[1]}
			return cli.Ask(cmd.Context(), a, (*api.Client).Rewind, req, func(r *caissonv1.RewindResponse) error {
				switch {
				case a.Output == cli.FormatJSON:
					return a.PrintJSON(r)
				case len(r.Execs) > 0:
					return a.PrintLine("ended %d processes, of the commands %s", r.Processes, strings.Join(r.Execs, ", "))
				}
				return a.PrintLine("ended %d processes", r.Processes)
			})
		},
	}
	snapshots := completeSnapshots(a)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return snapshots(cmd, args, start)
		}
		return a.CompleteSandboxes(cmd, args, start)
	}
	a.OutputFlags(cmd)
	return cmd
}
