package sandboxes

import (
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func PortCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "port SANDBOX",
		Short:             "List published ports of a sandbox",
		Example:           "  caisson port app",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).Inspect, &caissonv1.InspectRequest{Ref: args[0]}, func(d *caissonv1.InspectResponse) error {
				ports := d.GetSandbox().GetPorts()
				if a.Output == cli.FormatJSON {
					return a.PrintJSON(cli.Messages(a, ports))
				}
				return a.PrintLines(cli.Each(ports, portLine))
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

// portLine is what a port leads to, as in 127.0.0.1:8080 -> 3000.
func portLine(p *caissonv1.Port) string {
	host := net.JoinHostPort(p.Address, strconv.Itoa(int(p.HostPort)))
	line := host + " -> " + strconv.Itoa(int(p.Port))
	if len(p.Clients) > 0 {
		line += " for " + strings.Join(p.Clients, ", ")
	}
	return line
}
