// Command bench measures caisson beside whatever else this host has to run a
// container, and what it promises: `make bench`. It starts a daemon of its own
// and leaves nothing behind. JSON goes to standard output, a table for people
// to standard error. A missed target is a finding, not a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

func main() {
	rounds := flag.Int("n", 50, "rounds of cold runs")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root: it makes namespaces, mounts and cgroups")
	}
	if err := findPrograms(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := &driver{ctx: ctx}
	r := measure(t, rounds)
	t.finish()
	err := errors.Join(r.table(os.Stderr), r.print(os.Stdout))
	if t.failed {
		err = errors.Join(err, errors.New("something was left behind or did not end: see above"))
	}
	return err
}

// findPrograms takes those of this tree where nobody says otherwise.
func findPrograms() error {
	const variable = "CAISSON_BIN_DIR"
	if os.Getenv(variable) != "" {
		return nil
	}
	dir, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "caissond")); err != nil {
		return fmt.Errorf("run make bench at the top of the tree: %w", err)
	}
	return os.Setenv(variable, dir)
}

// measure goes from what needs a quiet daemon to what makes it work.
func measure(t *driver, rounds int) *Report {
	r := &Report{Date: time.Now().UTC().Round(time.Second), Machine: machine(), Rounds: rounds}
	progress(t, "daemon start")
	first, again := starts(t, startRounds)
	r.Start.First, r.Start.Again = summarize(first), summarize(again)

	s := newStand(t, harness.Start(t))
	time.Sleep(settle)
	r.Memory.Daemon = memoryOf(t, s.daemon.PID())
	progress(t, "memory of a sandbox")
	r.Memory.Init, r.Memory.Shim = s.sandboxMemory()
	progress(t, "cold runs, side by side")
	s.compare(r, rounds)
	progress(t, "stages")
	r.addCold(s.coldRuns(rounds))
	r.Version = summarize(s.repeat(rounds, func() *exec.Cmd { return s.daemon.Command(t.Context(), "version") }))
	time.Sleep(settle)
	r.Memory.DaemonAfter, r.Memory.Containerd = memoryOf(t, s.daemon.PID()), memoryOf(t, s.containerd())
	progress(t, "output and image of host tools")
	r.Throughput = s.throughput()
	r.FromHost = s.fromHost()
	time.Sleep(settle)
	r.Memory.DaemonLast = memoryOf(t, s.daemon.PID())
	r.Machine.LoadAfter = load()
	r.judge()
	return r
}

// startRounds is few: each one starts and stops two daemons.
const startRounds = 5

func progress(t *driver, what string) {
	if t.ctx.Err() != nil {
		t.Fatal("interrupted")
	}
	t.Log("measuring: " + what)
}

// compare runs everybody once in every round, so that what else the machine
// does weighs on all alike. Between two runs nothing is left of the first.
func (s *stand) compare(r *Report, rounds int) {
	all := s.contenders()
	took := map[string][]time.Duration{}
	for i := range rounds {
		for _, c := range all {
			if c.skipped != "" {
				continue
			}
			d, err := timed(c.command(i))
			if err != nil {
				s.t.Fatal(err)
			}
			took[c.name] = append(took[c.name], d)
			s.daemon.AwaitNoSandbox(s.t)
		}
	}
	for _, c := range all {
		run := Run{Name: c.name, What: c.what, Skipped: c.skipped}
		if c.skipped == "" {
			sum := summarize(took[c.name])
			run.Took, run.Ratio = &sum, ratioOfPairs(took["caisson"], took[c.name])
		}
		r.Cold = append(r.Cold, run)
		if c.skipped == "" && (c.name == "caisson" || c.name == "ctr") {
			r.InARow = append(r.InARow, InARow{c.name, milliseconds(s.backToBack(c, rounds))})
		}
	}
}

func (s *stand) repeat(rounds int, command func() *exec.Cmd) []time.Duration {
	took := make([]time.Duration, rounds)
	for i := range took {
		var err error
		if took[i], err = timed(command()); err != nil {
			s.t.Fatal(err)
		}
	}
	return took
}

func (r *Report) addCold(c cold) {
	for _, name := range c.names {
		r.Stages = append(r.Stages, Stage{name, summarize(c.stages[name])})
	}
	r.Made, r.Command, r.Teardown = summarize(c.total), summarize(c.command), summarize(c.teardown)
}
