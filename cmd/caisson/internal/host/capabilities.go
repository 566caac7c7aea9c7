package host

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func CapabilitiesCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "capabilities",
		Short:   "Show which settings this host can enforce",
		Example: "  caisson capabilities\n  caisson capabilities -o json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).Capabilities, &caissonv1.CapabilitiesRequest{}, func(r *caissonv1.CapabilitiesResponse) error {
				return cli.PrintList(a, r.Capabilities, []string{"FIELD", "SUPPORT", "DETAIL"}, capabilityRow)
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func capabilityRow(c *caissonv1.Capability) []string {
	return []string{c.Field, c.Support, cli.OrDash(c.Detail)}
}
