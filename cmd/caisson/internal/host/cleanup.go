package host

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func CleanupCommand(a *cli.App) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "cleanup [--dry-run]",
		Short:   "Remove leftovers of sandboxes that ended",
		Long:    "Remove leftovers that no live sandbox owns. Only resources of this daemon are checked.",
		Example: "  caisson cleanup --dry-run\n  caisson cleanup",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).Cleanup, &caissonv1.CleanupRequest{DryRun: dryRun}, func(r *caissonv1.CleanupResponse) error {
				return cli.PrintList(a, r.Leftovers, []string{"KIND", "ID", "REMOVED", "REASON"}, leftoverRow)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show leftovers and remove nothing")
	a.OutputFlags(cmd)
	return cmd
}

func leftoverRow(l *caissonv1.Leftover) []string {
	removed := "no"
	if l.Removed {
		removed = "yes"
	}
	return []string{l.Kind, l.Id, removed, l.Reason}
}
