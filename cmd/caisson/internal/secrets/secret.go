// Package secrets has the verbs of the secrets of routes.
package secrets

import (
	"context"
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
	cmd.AddCommand(secretLsCommand(a), secretSetCommand(a), secretRmCommand(a))
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
				return cli.PrintList(a, r.Secrets, []string{"NAME", "SOURCE", "READ", "USED", "SET BY", "ROUTES", "STATUS"}, func(s *caissonv1.Secret) []string { return secretRow(a, s) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func secretRow(a *cli.App, s *caissonv1.Secret) []string {
	read, used, by, status := a.AgeCell(s.ReadAt), a.AgeCell(s.UsedAt), "config", "readable"
	if s.Kept {
		by = "call"
	}
	if a.Wide {
		read, used = cli.TimeCell(s.ReadAt), cli.TimeCell(s.UsedAt)
	}
	if s.Error != "" {
		status = s.Error
	}
	return []string{s.Name, s.Source, read, used, by, strings.Join(s.Routes, ", "), status}
}

func secretSetCommand(a *cli.App) *cobra.Command {
	req, refresh := &caissonv1.SetSecretRequest{}, ""
	cmd := &cobra.Command{
		Use:   "set NAME --from SOURCE",
		Short: "Set where the value of a secret comes from",
		Long: "Have the daemon keep where the value of a secret comes from, also over restarts, and use the\nvalue from the next request on. Set it again after the value changed. The daemon keeps no value,\n" +
			"so a variable is no source: put its value into a file of root's. Only root may.",
		Example: "  caisson secret set models --from file:/etc/caisson/models.key\n  caisson secret set forge --from 'command:/usr/bin/pass show forge'",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Source == "" {
				return cli.Usage("--from is missing: give file:PATH, credential:NAME or command:PROGRAM")
			}
			p := cli.Parser{Flags: cmd.Flags()}
			req.Name, req.Refresh = args[0], p.Duration("refresh", refresh)
			if err := p.End(req); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).SetSecret, req, func(s *caissonv1.Secret) error {
				if a.Output == cli.FormatJSON {
					return a.PrintJSON(s)
				}
				return a.PrintLine("%s", cli.Printable(s.Name))
			})
		},
	}
	cmd.Flags().StringVar(&req.Source, "from", "", "`SOURCE`: file:PATH, credential:NAME of systemd, or 'command:PROGRAM ARGUMENTS'")
	cmd.Flags().StringVar(&refresh, "refresh", "", "read the value again after each `DURATION`, at least 1s (default: as the configuration has it)")
	a.OutputFlags(cmd)
	return cmd
}

func secretRmCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove secrets that were set and that no route uses",
		Example: "  caisson secret rm forge",
		Args:    cli.AtLeastOne("NAME"),
		RunE: a.RemoveNamed(func(ctx context.Context, client *api.Client, name string) error {
			_, err := client.RemoveSecret(ctx, &caissonv1.RemoveSecretRequest{Name: name})
			return err
		}),
	}
	a.OutputFlags(cmd)
	return cmd
}
