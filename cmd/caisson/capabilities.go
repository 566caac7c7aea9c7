package main

import (
	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *app) capabilitiesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capabilities",
		Short: "Show what this host enforces of a request",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			r, err := client.Capabilities(cmd.Context(), &caissonv1.CapabilitiesRequest{})
			if err != nil {
				return err
			}
			if a.output == formatJSON {
				return a.printJSON(each(r.Capabilities, capabilityViewOf))
			}
			return a.printTable([]string{"FIELD", "SUPPORT", "DETAIL"}, each(r.Capabilities, capabilityRow))
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func capabilityRow(c *caissonv1.Capability) []string {
	return []string{c.Field, c.Support, orDash(c.Detail)}
}
