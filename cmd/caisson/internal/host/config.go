package host

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func ConfigCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Manage the configuration of the daemon (root)",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(configReloadCommand(a))
	return cmd
}

func configReloadCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its configuration again",
		Long: "Have the daemon read its configuration again, as SIGHUP does. It prints which new values are in\n" +
			"force, and which need a restart. A broken file changes nothing. Sandboxes that exist keep the\n" +
			"values that they were made with.",
		Example: "  caisson config reload",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				r, err := client.ReloadConfig(cmd.Context())
				if err != nil {
					return err
				}
				return printReload(a, r)
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printReload(a *cli.App, r *caissonv1.ReloadConfigResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	var rows [][]string
	for _, key := range r.Changed {
		rows = append(rows, []string{key, "changed"})
	}
	for _, key := range r.NeedsRestart {
		rows = append(rows, []string{key, "needs a restart"})
	}
	if len(rows) == 0 {
		return a.PrintLine("nothing changed")
	}
	return a.PrintTable([]string{"KEY", "STATE"}, rows)
}
