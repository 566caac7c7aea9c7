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
		Short: "Show, apply and discard changes of ended sandboxes",
		Long: "Show, apply and discard changesets: what ended sandboxes changed in copy-on-write workspaces. A changeset\n" +
			"has the ID of its sandbox, and may be named as that was.",
		Args: cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE: cli.ShowHelp,
	}
	show, apply := DiffCommand(a), ApplyCommand(a)
	show.Use, show.Short, show.Example = "show CHANGESET", "Show a changeset, as diff", "  caisson changes show --stat agent\n  caisson changes show --patch agent"
	apply.Use, apply.Short, apply.Example = "apply CHANGESET [PATH...]", "Apply a changeset, as apply", "  caisson changes apply agent"
	for _, c := range []*cobra.Command{show, apply} {
		c.Long, c.ValidArgsFunction = "", completeChangesets(a)
	}
	discard := DiscardCommand(a)
	discard.Example = "  caisson changes discard agent"
	cmd.AddCommand(changesLsCommand(a), show, apply, discard)
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

func tellKept(a *cli.App, id string) {
	a.Progress("caisson: its changes are kept: caisson changes show " + id)
}

// tellIfKept is tellKept if a sandbox that has ended left a changeset.
func tellIfKept(ctx context.Context, a *cli.App, c *api.Client, id string) {
	r, _ := c.ListChangesets(ctx, &caissonv1.ListChangesetsRequest{}) // it has ended all the same
	for _, kept := range r.GetChangesets() {
		if kept.Id == id {
			tellKept(a, id)
		}
	}
}

// DiscardCommand is the verb discard.
func DiscardCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "discard CHANGESET...",
		Short:             "Remove changesets",
		Example:           "  caisson discard agent",
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
