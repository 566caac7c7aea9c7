package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type statsView struct {
	Sandboxes map[string]int32 `json:"sandboxes"`
	Execs     int32            `json:"execs"`
	Queued    int32            `json:"queued"`
	Pools     []poolView       `json:"pools"`
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

func (a *app) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what the daemon counts: sandboxes, commands, pools",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			r, err := client.Stats(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == formatJSON {
				return a.printJSON(statsView{orEmptyMap(r.Sandboxes), r.Execs, r.Queued, each(r.Pools, poolViewOf)})
			}
			return a.printStats(r)
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *app) printStats(r *caissonv1.StatsResponse) error {
	for _, state := range slices.Sorted(maps.Keys(r.Sandboxes)) {
		if err := a.printLine("sandboxes %s: %d", printable(state), r.Sandboxes[state]); err != nil {
			return err
		}
	}
	if err := a.printLine("commands: %d\nqueued: %d", r.Execs, r.Queued); err != nil || len(r.Pools) == 0 {
		return err
	}
	return a.printTable([]string{"PROFILE", "IMAGE", "READY", "HITS", "MISSES", "FAILURES", "REFILL"}, each(r.Pools, poolRow))
}

func poolRow(p *caissonv1.PoolStats) []string {
	ready := fmt.Sprintf("%d/%d", p.Ready, p.Target)
	if p.Filling > 0 {
		ready += fmt.Sprintf("+%d", p.Filling)
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{p.Profile, p.Image, ready, count(p.Hits), count(p.Misses), count(p.Failures), fmt.Sprintf("%.1fms", milliseconds(p.Refill))}
}
