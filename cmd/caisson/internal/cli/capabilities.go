package cli

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *App) capabilitiesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "capabilities",
		Short:   "Show which settings this host can enforce",
		Example: "  caisson capabilities\n  caisson capabilities -o json",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), a, (*api.Client).Capabilities, &caissonv1.CapabilitiesRequest{}, func(r *caissonv1.CapabilitiesResponse) error {
				return printList(a, r.Capabilities, capabilityViewOf, []string{"FIELD", "SUPPORT", "DETAIL"}, capabilityRow)
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func capabilityRow(c *caissonv1.Capability) []string {
	return []string{c.Field, c.Support, orDash(c.Detail)}
}
