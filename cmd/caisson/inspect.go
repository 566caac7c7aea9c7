package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect SANDBOX",
		Short:             "Show details of a sandbox as JSON",
		Args:              exactly("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, (*api.Client).Inspect, &caissonv1.InspectRequest{Ref: args[0]}, func(d *caissonv1.InspectResponse) error {
				return a.printJSON(inspectViewOf(d))
			})
		},
	}
	a.jsonOnly(cmd)
	return cmd
}
