package sandboxes

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// ChangesCommand is the verb changes.
func ChangesCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "Show and discard changes of ended sandboxes",
		Long: "Show and discard changesets: what ended sandboxes changed in copy-on-write workspaces. A changeset\n" +
			"has the ID of its sandbox. diff shows and apply applies one, as they do with a live sandbox.",
		Args: cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE: cli.ShowHelp,
	}
	cmd.AddCommand(changesLsCommand(a), changesDiscardCommand(a))
	return cmd
}

func changesLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List changesets",
		Example: "  caisson changes ls",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ListChangesets, &caissonv1.ListChangesetsRequest{}, func(r *caissonv1.ListChangesetsResponse) error {
				return cli.PrintList(a, r.Changesets, []string{"CHANGESET", "OWNER", "KEPT", "SANDBOX", "WORKSPACE", "SIZE"}, func(c *caissonv1.Changeset) []string { return changesetRow(a, c) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func changesetRow(a *cli.App, c *caissonv1.Changeset) []string {
	kept := a.AgeCell(c.KeptAt)
	if a.Wide {
		kept = cli.TimeCell(c.KeptAt)
	}
	return []string{c.Id, cli.Decimal(int64(c.Owner)), kept, c.Name, cli.Printable(c.Workspace), cli.SizeCell(c.SizeBytes)}
}

func changesDiscardCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "discard CHANGESET...",
		Short:             "Remove changesets",
		Example:           "  caisson changes discard agent",
		Args:              cli.AtLeastOne("CHANGESET"),
		ValidArgsFunction: completeChangesets(a),
		RunE: a.RemoveNamed(func(ctx context.Context, client *api.Client, name string) error {
			_, err := client.DiscardChangeset(ctx, &caissonv1.DiscardChangesetRequest{Ref: name})
			return err
		}),
	}
	a.OutputFlags(cmd)
	return cmd
}

// completeChangesets offers the IDs of changesets.
func completeChangesets(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
			r, err := c.ListChangesets(ctx, &caissonv1.ListChangesetsRequest{})
			return cli.Each(r.GetChangesets(), (*caissonv1.Changeset).GetId), err
		})
	}
}
