package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table shows the report to a person.
func (r *Report) table(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(cells ...any) { fmt.Fprintln(w, strings.TrimSuffix(fmt.Sprintln(cells...), "\n")) }
	if r.did("cold") {
		r.coldTable(line)
	}
	for _, s := range r.Sessions {
		s.table(line)
	}
	if r.did("start") {
		line("")
		stageLines(line, []Stage{{"daemon start, empty", r.Start.First}, {"daemon start, again", r.Start.Again}})
	}
	line(fmt.Sprintf("\nload\t%s, then %s", r.Machine.LoadBefore, r.Machine.LoadAfter))
	r.verdicts(line)
	return w.Flush()
}

type printer func(cells ...any)

func runLines(line printer, runs []Run) {
	for _, c := range runs {
		switch {
		case c.Skipped != "":
			line(c.Name + "\tskipped: " + c.Skipped)
		case c.Took == nil: // a figure says it
		case c.Ratio == 0:
			line(fmt.Sprintf("%s\t%.2f\t%.2f", c.Name, c.Took.P50, c.Took.P99))
		default:
			line(fmt.Sprintf("%s\t%.2f\t%.2f\t%.2f of it", c.Name, c.Took.P50, c.Took.P99, c.Ratio))
		}
	}
}

func stageLines(line printer, stages []Stage) {
	for _, s := range stages {
		line(fmt.Sprintf("%s\t%.2f\t%.2f", s.Name, s.P50, s.P99))
	}
}

func (s Section) table(line printer) {
	line("\n" + s.Name + "\tp50 ms\tp99 ms\tcaisson is")
	runLines(line, s.Runs)
	for _, f := range s.Figures {
		line(fmt.Sprintf("  %s\t%.4g %s", f.Name, f.Value, f.Unit))
	}
	for _, st := range s.Trace {
		line(fmt.Sprintf("  %s\t%.2f\t%.2f", st.Name, st.P50, st.P99))
	}
}

func (r *Report) coldTable(line printer) {
	line("cold run of true\tp50 ms\tp99 ms\tcaisson is")
	runLines(line, r.Cold)
	for _, c := range r.InARow {
		line(fmt.Sprintf("%s, back to back\t%.1f", c.Name, c.Mean))
	}
	line("\nstage\tp50 ms\tp99 ms")
	stageLines(line, r.Stages)
	stageLines(line, []Stage{{"all stages", r.Made}, {"true itself", r.Command}, {"until no trace is left", r.Teardown}, {"caisson version", r.Version}})
	line("\nmemory\tPSS MB")
	m := &r.Memory
	for _, p := range []struct {
		name string
		Memory
	}{
		{"caissond, started", m.Daemon}, {"caissond, after the runs", m.DaemonAfter}, {"caissond, after an image", m.DaemonLast},
		{"containerd, after the runs", m.Containerd}, {"caisson-init, each", m.Init}, {"shim, each", m.Shim},
	} {
		line(fmt.Sprintf("%s\t%.1f", p.name, p.PSS))
	}
	line(fmt.Sprintf("\noutput\t%.0f MB/s absorbed, %.0f MB/s delivered", r.Throughput.Absorbed, r.Throughput.Delivered))
	line(fmt.Sprintf("image of host tools\t%.1f s, %.0f MB", r.FromHost.Seconds, float64(r.FromHost.Bytes)/1e6))
}

func (r *Report) verdicts(line printer) {
	missed := 0
	line("\ntarget\tmeasured\twanted")
	for _, t := range r.Targets {
		verdict := "met"
		if !t.Met {
			verdict, missed = "MISSED", missed+1
		}
		line(fmt.Sprintf("%s\t%.3g\t%s\t%s", t.Name, t.Value, t.Target, verdict))
	}
	if missed > 0 {
		line(fmt.Sprintf("\n*** %d OF %d TARGETS MISSED ***", missed, len(r.Targets)))
	}
}
