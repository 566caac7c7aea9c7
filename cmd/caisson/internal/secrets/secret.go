// Package secrets has the verbs of the secrets of routes.
package secrets

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// SecretCommand is the verb secret.
func SecretCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Manage the secrets that routes add to requests",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(secretLsCommand(a))
	return cmd
}

func secretLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List secrets, without their values",
		Long:    "List the secrets of routes: where each comes from, when it was read and used since the daemon\nstarted, whether it can be read now, and the routes that use it. Only root may. A value is\nnever shown.",
		Example: "  caisson secret ls",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ListSecrets, &caissonv1.ListSecretsRequest{}, func(r *caissonv1.ListSecretsResponse) error {
				return cli.PrintList(a, r.Secrets, []string{"NAME", "SOURCE", "READ", "USED", "ROUTES", "STATUS"}, func(s *caissonv1.Secret) []string { return secretRow(a, s) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func secretRow(a *cli.App, s *caissonv1.Secret) []string {
	read, used, status := a.AgeCell(s.ReadAt), a.AgeCell(s.UsedAt), "readable"
	if a.Wide {
		read, used = cli.TimeCell(s.ReadAt), cli.TimeCell(s.UsedAt)
	}
	if s.Error != "" {
		status = s.Error
	}
	return []string{s.Name, s.Source, read, used, strings.Join(s.Routes, ", "), status}
}
