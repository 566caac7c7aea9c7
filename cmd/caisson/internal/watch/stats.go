// Package watch has the verbs that watch a daemon: figures, events and records.
package watch

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const statsLong = `Show what sandboxes use, again each second until interrupted: all live ones, the named
ones, or those that the flags select. CPU 100 % is one CPU. MEMORY includes the page cache.
WAITED is the share of the last 10 s in which a process waited for CPU, memory or I/O (PSI).
A dash marks a value that this host does not count. With --json each sandbox is one line.`

func StatsCommand(a *cli.App) *cobra.Command {
	var f cli.FilterFlags
	var noStream bool
	cmd := &cobra.Command{
		Use:               "stats [flags] [SANDBOX…]",
		Aliases:           []string{"top"},
		Short:             "Show the resource usage of sandboxes",
		Long:              statsLong,
		Example:           "  caisson stats\n  caisson stats --no-stream --json agent",
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, refs []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			l := f.Request(&p)
			req := &caissonv1.StatsRequest{
				Refs: refs, NoStream: noStream,
				Labels: l.Labels, Session: l.Session, Task: l.Task, Name: l.Name, States: l.States, OlderThan: l.OlderThan,
			}
			if err := p.End(req); err != nil {
				return err
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				return client.Stats(cmd.Context(), req, statsPrinter(a, !noStream))
			})
		},
	}
	f.Register(cmd)
	cmd.Flags().BoolVar(&noStream, "no-stream", false, "print the first result and exit")
	a.OutputFlags(cmd)
	return cmd
}

// statsPrinter prints each answer. On a terminal a stream updates one table in place.
func statsPrinter(a *cli.App, stream bool) func(*caissonv1.StatsResponse) error {
	screen, onScreen := a.Stdout.(*os.File)
	onScreen = onScreen && stream && cli.IsTerminal(screen)
	return func(r *caissonv1.StatsResponse) error {
		if a.Output == cli.FormatJSON {
			return a.PrintJSONLine(r)
		}
		var table bytes.Buffer
		headings := []string{"NAME", "CPU", "MEMORY / LIMIT", "PIDS", "I/O READ / WRITE", "NET OUT / IN"}
		if a.Wide {
			headings = append(headings, "MEM", "PEAK", "PIDS LIMIT", "WAITED CPU", "MEM", "I/O")
		}
		if err := cli.WriteTable(&table, headings, cli.Each(r.Sandboxes, func(s *caissonv1.SandboxStats) []string { return statsRow(a, s) }), 0, false); err != nil {
			return err
		}
		if onScreen {
			return cli.OwnOutput(redraw(screen, table.Bytes()))
		}
		_, err := a.Stdout.Write(table.Bytes())
		return cli.OwnOutput(err)
	}
}

// redraw puts text in the place of all that the terminal shows: as many lines as fit.
func redraw(screen *os.File, text []byte) error {
	t := cli.Terminal{File: screen}
	size := t.Size()
	frame := []byte("\x1b[H") // the cursor to the corner
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	for i, line := range lines {
		if more := len(lines) - i; i == int(size.Rows)-2 && more > 1 {
			frame = fmt.Appendf(frame, "… %d more\x1b[K\n", more)
			break
		}
		if runes := []rune(string(line)); len(runes) > int(size.Cols) {
			line = []byte(string(runes[:size.Cols]))
		}
		frame = append(append(frame, line...), "\x1b[K\n"...) // and clear the rest of the line
	}
	_, err := screen.Write(append(frame, "\x1b[J"...)) // and of the screen
	return err
}

func statsRow(a *cli.App, s *caissonv1.SandboxStats) []string {
	row := []string{
		s.Name, fmt.Sprintf("%.1f%%", s.CpuPercent), byteCell(&s.MemoryBytes) + " / " + byteCell(&s.MemoryLimitBytes), cli.Decimal(s.Pids),
		byteCell(s.IoReadBytes) + " / " + byteCell(s.IoWriteBytes), byteCell(&s.SentBytes) + " / " + byteCell(&s.ReceivedBytes),
	}
	if !a.Wide {
		row[0] = cli.Shorten(row[0], cli.NameCell)
		return row
	}
	share := "-"
	if s.MemoryLimitBytes > 0 {
		share = fmt.Sprintf("%.0f%%", 100*float64(s.MemoryBytes)/float64(s.MemoryLimitBytes))
	}
	return append(row, share, byteCell(s.PeakMemoryBytes), cli.Decimal(s.PidsLimit), percentCell(s.CpuPressure), percentCell(s.MemoryPressure), percentCell(s.IoPressure))
}

func percentCell(p *float64) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *p)
}

// byteCell is n in the largest unit of which there is one.
func byteCell(n *int64) string {
	if n == nil {
		return "-"
	}
	const units = "KMGT"
	v, unit := float64(*n), -1
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	if unit < 0 {
		return strconv.FormatInt(*n, 10) + "B"
	}
	return fmt.Sprintf("%.1f%ciB", v, units[unit])
}
