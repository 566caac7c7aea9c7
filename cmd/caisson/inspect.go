package main

import (
	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect SANDBOX",
		Short:             "Show all that is known of a sandbox, as JSON",
		Args:              exactly("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			detail, err := client.Inspect(cmd.Context(), &caissonv1.InspectRequest{Ref: args[0]})
			if err != nil {
				return err
			}
			return a.printJSON(inspectViewOf(detail))
		},
	}
	a.jsonOnly(cmd)
	return cmd
}
