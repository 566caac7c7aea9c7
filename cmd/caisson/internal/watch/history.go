package watch

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const historyLong = `Show what a sandbox used over time, as graphs. A sample is kept for each second of the last
5 minutes, each 10 s of the 30 minutes before, each minute of the 3 hours before, and each
10 minutes of the 28 hours before. The samples of the last sandboxes that have ended are kept
(sandboxes.kept_usage), also of those that are removed: name them by name or ID.`

func HistoryCommand(a *cli.App) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:               "history [flags] SANDBOX",
		Short:             "Show the resource usage of a sandbox over time",
		Long:              historyLong,
		Example:           "  caisson history agent",
		Args:              cli.Exactly("SANDBOX"),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			age := p.Duration("since", since)
			req := &caissonv1.HistoryRequest{Ref: args[0]}
			if err := p.End(req); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).History, req, func(h *caissonv1.HistoryResponse) error {
				if age != nil {
					from := a.Now().Add(-age.AsDuration())
					for len(h.Samples) > 0 && h.Samples[0].Time.AsTime().Before(from) {
						h.Samples = h.Samples[1:]
					}
				}
				return printHistory(a, h)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "show the last `DURATION` only, such as 10m")
	a.OutputFlags(cmd)
	return cmd
}

func printHistory(a *cli.App, h *caissonv1.HistoryResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(h)
	}
	name := cli.Printable(cmp.Or(h.Name, h.SandboxId))
	if len(h.Samples) == 0 {
		return a.PrintLine("%s: no samples", name)
	}
	first, last := h.Samples[0].Time.AsTime(), h.Samples[len(h.Samples)-1].Time.AsTime()
	if err := a.PrintLine("%s, %s, %s to %s", name, h.State, first.UTC().Format(time.RFC3339), last.UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	const mib = 1 << 20
	for _, g := range []struct {
		caption string
		value   func(*caissonv1.UsageSample) float64
		always  bool
	}{
		{fmt.Sprintf("CPU %%, limit %g", float64(h.MilliCpu)/10), func(s *caissonv1.UsageSample) float64 { return s.CpuPercent }, true},
		{fmt.Sprintf("memory in MiB, limit %d", h.MemoryLimitBytes/mib), func(s *caissonv1.UsageSample) float64 { return float64(s.MemoryBytes) / mib }, true},
		{"I/O in MiB", func(s *caissonv1.UsageSample) float64 { return float64(s.IoReadBytes+s.IoWriteBytes) / mib }, false},
		{"network in MiB", func(s *caissonv1.UsageSample) float64 { return float64(s.SentBytes+s.ReceivedBytes) / mib }, false},
	} {
		values := spread(h.Samples, graphWidth(a), g.value)
		if !g.always && !hasAny(values) {
			continue
		}
		graph := asciigraph.Plot(values, asciigraph.Height(8), asciigraph.Caption(g.caption), asciigraph.LowerBound(0))
		if err := a.PrintLine("\n%s", graph); err != nil {
			return err
		}
	}
	return nil
}

// graphWidth is how many columns of a graph fit beside its scale.
func graphWidth(a *cli.App) int {
	const scale = 12
	size := cli.DefaultSize
	if f, ok := a.Stdout.(*os.File); ok && cli.IsTerminal(f) {
		size = (&cli.Terminal{File: f}).Size()
	}
	return max(10, int(size.Cols)-scale)
}

func hasAny(values []float64) bool {
	for _, v := range values {
		if v > 0 {
			return true
		}
	}
	return false
}

// spread puts values into columns of equal time: the most of the samples in each, and
// where there is none the one of the column before. Short histories take fewer columns.
func spread(samples []*caissonv1.UsageSample, width int, value func(*caissonv1.UsageSample) float64) []float64 {
	first := samples[0].Time.AsTime()
	whole := samples[len(samples)-1].Time.AsTime().Sub(first)
	columns := make([]float64, max(2, min(width, int(whole/time.Second)+1))) // of one value no line is drawn
	known := make([]bool, len(columns))
	for _, s := range samples {
		i := 0
		if whole > 0 {
			i = int(int64(len(columns)-1) * int64(s.Time.AsTime().Sub(first)) / int64(whole))
		}
		columns[i], known[i] = max(columns[i], value(s)), true
	}
	for i := 1; i < len(columns); i++ {
		if !known[i] {
			columns[i] = columns[i-1]
		}
	}
	return columns
}
