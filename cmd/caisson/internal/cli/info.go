package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type infoView struct {
	Sandboxes map[string]int32 `json:"sandboxes"`
	Execs     int32            `json:"execs"`
	Queued    int32            `json:"queued"`
	Pools     []poolView       `json:"pools"`
	Networks  []networkView    `json:"networks"`
}

// networkView is what went through the gateway for one sandbox.
type networkView struct {
	SandboxID string      `json:"sandbox_id"`
	Name      string      `json:"name"`
	Network   string      `json:"network"`
	Egress    *egressView `json:"egress"`
}

func networkViewOf(n *caissonv1.NetworkStats) networkView {
	return networkView{n.SandboxId, n.Name, n.Network, egressViewOf(n.Egress)}
}

type poolView struct {
	Profile  string  `json:"profile"`
	Image    string  `json:"image"`
	Ready    int32   `json:"ready"`
	Filling  int32   `json:"filling"`
	Size     int32   `json:"size"`
	Target   int32   `json:"target"`
	Max      int32   `json:"max"`
	Hits     int64   `json:"hits"`
	Misses   int64   `json:"misses"`
	Failures int64   `json:"failures"`
	RefillMS float64 `json:"refill_ms"`
}

func poolViewOf(p *caissonv1.PoolStats) poolView {
	return poolView{p.Profile, p.Image, p.Ready, p.Filling, p.Size, p.Target, p.Max, p.Hits, p.Misses, p.Failures, milliseconds(p.Refill)}
}

func (a *App) infoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "info",
		Short:   "Show counts of sandboxes, commands, pools and network traffic",
		Long:    "Show counts of sandboxes, commands and pools, and the network traffic of each of your\nlive sandboxes with a network.\n\nREADY of a pool is READY/TARGET+FILLING: ready sandboxes, the wanted number, and those in\ncreation. MISSES counts requests that found no ready sandbox.",
		Example: "  caisson info",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				r, err := client.Info(cmd.Context())
				if err != nil {
					return err
				}
				return a.printInfo(r)
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *App) printInfo(r *caissonv1.InfoResponse) error {
	if a.output == formatJSON {
		return a.PrintJSON(infoView{orEmptyMap(r.Sandboxes), r.Execs, r.Queued, each(r.Pools, poolViewOf), each(r.Networks, networkViewOf)})
	}
	for _, state := range slices.Sorted(maps.Keys(r.Sandboxes)) {
		if err := a.PrintLine("sandboxes %s: %d", printable(state), r.Sandboxes[state]); err != nil {
			return err
		}
	}
	if err := a.PrintLine("commands: %d\nqueued: %d", r.Execs, r.Queued); err != nil {
		return err
	}
	if len(r.Pools) > 0 {
		headings := []string{"PROFILE", "IMAGE", "READY", "HITS", "MISSES", "FAILURES", "REFILL"}
		if err := a.printTable(headings, each(r.Pools, poolRow)); err != nil {
			return err
		}
	}
	if len(r.Networks) == 0 {
		return nil
	}
	return a.printTable([]string{"SANDBOX", "NETWORK", "OPEN", "ALLOWED", "REFUSED", "FAILED", "OUT", "IN", "LOOKUPS", "LOST"}, each(r.Networks, networkRow))
}

func networkRow(n *caissonv1.NetworkStats) []string {
	e := n.GetEgress()
	lookups := fmt.Sprintf("%d", e.GetLookupsAnswered())
	if refused := e.GetLookupsRefused(); refused > 0 {
		lookups += fmt.Sprintf(", %d refused", refused)
	}
	return []string{
		n.Name, n.Network, decimal(e.GetOpen()), decimal(e.GetAllowed()), decimal(e.GetRefused()), decimal(e.GetFailed()),
		decimal(e.GetSentBytes()), decimal(e.GetReceivedBytes()), lookups, decimal(e.GetLost()),
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func poolRow(p *caissonv1.PoolStats) []string {
	ready := fmt.Sprintf("%d/%d", p.Ready, p.Target)
	if p.Filling > 0 {
		ready += fmt.Sprintf("+%d", p.Filling)
	}
	return []string{p.Profile, p.Image, ready, decimal(p.Hits), decimal(p.Misses), decimal(p.Failures), fmt.Sprintf("%.1fms", milliseconds(p.Refill))}
}
