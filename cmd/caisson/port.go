package main

import (
	"net"
	"strconv"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *app) portCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "port SANDBOX",
		Short:             "List the ports of the host that lead into a sandbox",
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
			ports := detail.GetSandbox().GetPorts()
			if a.output == formatJSON {
				return a.printJSON(each(ports, portViewOf))
			}
			return a.printLines(each(ports, portLine))
		},
	}
	a.outputFlags(cmd)
	return cmd
}

// portLine is what a port leads to, as in 127.0.0.1:8080 -> 3000.
func portLine(p *caissonv1.Port) string {
	host := net.JoinHostPort(p.Address, strconv.Itoa(int(p.HostPort)))
	return host + " -> " + strconv.Itoa(int(p.Port))
}
