package watch

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func InfoCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "info",
		Short:   "Show counts of sandboxes, commands, pools and network traffic",
		Long:    "Show counts of sandboxes, commands and pools, and the network traffic of each of your\nlive sandboxes with a network.\n\nCAPACITY is what your sandboxes may have together: of the host, or of your quota where that\nis less. AVAILABLE is what the limits of the live ones leave of it.\n\nREADY of a pool is READY/TARGET+FILLING: ready sandboxes, the wanted number, and those in\ncreation. MISSES counts requests that found no ready sandbox.",
		Example: "  caisson info",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				r, err := client.Info(cmd.Context())
				if err != nil {
					return err
				}
				return printInfo(a, r)
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printInfo(a *cli.App, r *caissonv1.InfoResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	for _, state := range slices.Sorted(maps.Keys(r.Sandboxes)) {
		if err := a.PrintLine("sandboxes %s: %d", cli.Printable(state), r.Sandboxes[state]); err != nil {
			return err
		}
	}
	if err := a.PrintLine("commands: %d\nqueued: %d", r.Execs, r.Queued); err != nil {
		return err
	}
	if err := a.PrintTable([]string{"RESOURCE", "CAPACITY", "AVAILABLE"}, resourceRows(r.GetCapacity(), r.GetAvailable())); err != nil {
		return err
	}
	if len(r.Pools) > 0 {
		headings := []string{"PROFILE", "IMAGE", "READY", "HITS", "MISSES", "FAILURES", "REFILL"}
		if err := a.PrintTable(headings, cli.Each(r.Pools, poolRow)); err != nil {
			return err
		}
	}
	if len(r.Networks) == 0 {
		return nil
	}
	return a.PrintTable([]string{"SANDBOX", "NETWORK", "OPEN", "ALLOWED", "REFUSED", "FAILED", "OUT", "IN", "LOOKUPS", "LOST"}, cli.Each(r.Networks, networkRow))
}

func resourceRows(all, left *caissonv1.Resources) [][]string {
	size := cli.SizeCell
	return [][]string{
		{"cpus", units.FormatCPU(all.GetMilliCpu()), units.FormatCPU(left.GetMilliCpu())},
		{"memory", size(all.GetMemoryBytes()), size(left.GetMemoryBytes())},
		{"sandboxes", cli.Decimal(all.GetSandboxes()), cli.Decimal(left.GetSandboxes())},
		{"disk", size(all.GetDiskBytes()), size(left.GetDiskBytes())},
	}
}

func networkRow(n *caissonv1.NetworkStats) []string {
	e := n.GetEgress()
	lookups := fmt.Sprintf("%d", e.GetLookupsAnswered())
	if refused := e.GetLookupsRefused(); refused > 0 {
		lookups += fmt.Sprintf(", %d refused", refused)
	}
	return []string{
		n.Name, n.Network, cli.Decimal(e.GetOpen()), cli.Decimal(e.GetAllowed()), cli.Decimal(e.GetRefused()), cli.Decimal(e.GetFailed()),
		cli.Decimal(e.GetSentBytes()), cli.Decimal(e.GetReceivedBytes()), lookups, cli.Decimal(e.GetLost()),
	}
}

func poolRow(p *caissonv1.PoolStats) []string {
	ready := fmt.Sprintf("%d/%d", p.Ready, p.Target)
	if p.Filling > 0 {
		ready += fmt.Sprintf("+%d", p.Filling)
	}
	return []string{p.Profile, p.Image, ready, cli.Decimal(p.Hits), cli.Decimal(p.Misses), cli.Decimal(p.Failures), fmt.Sprintf("%.1fms", cli.Milliseconds(p.Refill))}
}
