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
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

func main() {
	rounds := flag.Int("n", 50, "rounds of cold runs; what is cheap is done ten times as often")
	only := flag.String("only", "", "the measurements to make, separated by commas, of: "+sectionNames())
	length := flag.Duration("sustained", 60*time.Second, "how long the sustained load lasts, for each contender")
	flag.Parse()
	if err := run(*only, *rounds, *length); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only string, rounds int, length time.Duration) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root: it makes namespaces, mounts and cgroups")
	}
	if err := findPrograms(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := &driver{ctx: ctx}
	if err := stateOnTmpfs(t); err != nil {
		return err
	}
	r := measure(t, chosen, rounds, length)
	t.finish()
	err = errors.Join(r.table(os.Stderr), r.print(os.Stdout))
	if t.failed {
		err = errors.Join(err, errors.New("something was left behind or did not end: see above"))
	}
	return err
}

// stateOnTmpfs sees to it that the daemons' state is where Debian has it, for all
// that are compared: files that live for a second cost a disk's file system more
// than the sandboxes that they are of.
func stateOnTmpfs(t *driver) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(harness.StateParent, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		return err
	}
	dir, err := os.MkdirTemp(harness.StateParent, "cb") // short: sockets lie below it
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return errors.Join(fmt.Errorf("mount a tmpfs at %s: %w", dir, err), os.Remove(dir))
	}
	harness.StateParent = dir
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(dir, 0), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return nil
}

// findPrograms takes those of this tree where nobody says otherwise.
func findPrograms() error {
	for variable, program := range map[string]string{"CAISSON_BIN_DIR": "bin/caissond", "CAISSON_REGISTRY": "build/registry/registry"} {
		if os.Getenv(variable) != "" {
			continue
		}
		path, err := filepath.Abs(program)
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("run make bench at the top of the tree: %w", err)
		}
		if variable == "CAISSON_BIN_DIR" {
			path = filepath.Dir(path)
		}
		if err := os.Setenv(variable, path); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the chosen sections.
func measure(t *driver, chosen []section, rounds int, length time.Duration) *Report {
	r := &Report{Date: time.Now().UTC().Round(time.Second), Machine: machine(), Rounds: rounds}
	s := &suite{t: t, r: r, rounds: rounds, length: length}
	for _, sec := range chosen {
		progress(t, sec.what)
		r.Done = append(r.Done, sec.name)
		sec.run(s)
	}
	r.Machine.LoadAfter = load()
	return r
}

func (s *suite) start() {
	first, again := starts(s.t, startRounds)
	s.r.Start.First, s.r.Start.Again = summarize(first), summarize(again)
}

// cold measures what one sandbox for one command costs, and what it is made of.
func (s *suite) cold() {
	st, r := s.plain(), s.r
	r.Memory.Daemon = memoryOf(s.t, st.daemon.PID())
	progress(s.t, "memory of a sandbox")
	r.Memory.Init, r.Memory.Shim = st.sandboxMemory()
	progress(s.t, "cold runs, side by side")
	st.compare(r, s.rounds)
	progress(s.t, "stages")
	r.addCold(st.coldRuns(s.rounds))
	r.Version = summarize(st.repeat(s.rounds, func() *exec.Cmd { return st.daemon.Command(s.t.Context(), "version") }))
	time.Sleep(settle)
	r.Memory.DaemonAfter, r.Memory.Containerd = memoryOf(s.t, st.daemon.PID()), memoryOf(s.t, st.containerd())
	progress(s.t, "output and image of host tools")
	r.Throughput = st.throughput()
	r.FromHost = st.fromHost()
	time.Sleep(settle)
	r.Memory.DaemonLast = memoryOf(s.t, st.daemon.PID())
	r.judge()
}

// startRounds is few: each one starts and stops two daemons.
const startRounds = 5

func progress(t *driver, what string) {
	if t.ctx.Err() != nil {
		t.Fatal("interrupted")
	}
	t.Log("measuring: " + what)
}

// compare runs everybody from nothing. Between two runs nothing is left of the
// first.
func (s *stand) compare(r *Report, rounds int) {
	all := s.contenders()
	r.Cold = s.sideBySide(all, rounds, func() { s.daemon.AwaitNoSandbox(s.t) })
	for _, c := range all {
		if c.skipped == "" && (c.name == "caisson" || c.name == "ctr") {
			r.InARow = append(r.InARow, InARow{c.name, milliseconds(s.backToBack(c, rounds))})
		}
	}
}

// sideBySide runs everybody once in every round, so that what else the machine
// does weighs on all alike. Their order changes from round to round, and is the same in
// each bench: what a daemon still does when its client has ended falls on all the others. before
// is called before each run.
func (s *stand) sideBySide(all []contender, rounds int, before func()) []Run {
	took, order := map[string][]time.Duration{}, rand.New(rand.NewPCG(0, 0))
	for i := range rounds {
		for _, k := range order.Perm(len(all)) {
			c := all[k]
			if c.skipped != "" {
				continue
			}
			if before != nil {
				before()
			}
			d, err := timed(c.command(i))
			if err != nil {
				s.t.Fatal(err)
			}
			took[c.name] = append(took[c.name], d)
		}
	}
	var runs []Run
	for _, c := range all {
		run := Run{Name: c.name, What: c.what, Skipped: c.skipped}
		if c.skipped == "" {
			sum := summarize(took[c.name])
			run.Took, run.Ratio = &sum, ratioOfPairs(took["caisson"], took[c.name])
		}
		runs = append(runs, run)
	}
	return runs
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
