package sandboxes

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func RmCommand(a *cli.App) *cobra.Command {
	var force bool
	var f cli.FilterFlags
	cmd := &cobra.Command{
		Use:               "rm [flags] SANDBOX...",
		Aliases:           []string{"remove"},
		Short:             "Remove sandboxes",
		Example:           "  caisson rm --force agent\n  caisson rm --session s-17 --state exited\n  caisson rm --all --force",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithSelected(cmd, &f, args, func(ctx context.Context, client *api.Client, refs []string) error {
				return a.RemoveEach(refs, func(ref string) (string, error) {
					r, err := client.Remove(ctx, &caissonv1.RemoveRequest{Ref: ref, Force: force})
					if len(args) == 0 && sbxerr.Of(err) == sbxerr.NotFound { // it ended since it was listed, with its parent perhaps
						return ref, nil
					}
					if r.GetChangeset() != "" {
						tellKept(a, r.Changeset)
					}
					return r.GetId(), err
				})
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove running sandboxes too")
	f.RegisterSelecting(cmd)
	a.OutputFlags(cmd)
	return cmd
}
