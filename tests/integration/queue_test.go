package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// slowRunc returns a directory of programs whose runc makes nothing while the
// file that it returns too is there.
func slowRunc(t *testing.T) (programs, hold string) {
	t.Helper()
	programs = harness.ProgramsWithout(t, "runc")
	hold = filepath.Join(programs, "hold")
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' create '*) while [ -e %s ]; do sleep 0.05; done;; esac\nexec %s \"$@\"\n", hold, harness.Bin(t, "runc"))
	if err := os.WriteFile(filepath.Join(programs, "runc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return programs, hold
}

func queued(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	var st struct{ Queued int }
	d.Run(t, "info", "-o", "json").JSON(t, &st)
	return st.Queued
}

// So many are made at once, so many wait, and one more is refused at once. Those
// that wait are made in the end, or give their place back when their caller
// leaves.
func TestQueueOfCreations(t *testing.T) {
	t.Parallel()
	programs, hold := slowRunc(t)
	d := harness.StartWith(t, "bin_dir: "+programs+"\nsandboxes: {max: 4, max_creating: 2, queue: 1}\n")
	d.Run(t, "run", "--", "true")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	creating := func() (n int) {
		for _, l := range list(t, d) {
			if l.State == "creating" {
				n++
			}
		}
		return n
	}
	var making []*client
	for i := range 3 {
		making = append(making, beside(t, d, "create", "--name", fmt.Sprintf("c%d", i)))
		await(t, "a creation", func() bool { return creating() == i+1 })
	}
	await(t, "the queue", func() bool { return queued(t, d) == 1 })
	begin := time.Now()
	f := d.Refused(t, "SBX-113", "create", "-o", "json", "--name", "late")
	if f.Error.Message != "1 requests wait for a sandbox, which is the most (sandboxes.queue)" || time.Since(begin) > 2*time.Second {
		t.Errorf("after %s: %+v", time.Since(begin), f.Error)
	}
	var late []*client
	for range 10 { // none of which is the last that may live
		late = append(late, beside(t, d, "run", "--json", "--", "true"))
	}
	for _, c := range late {
		if c.end(t); !strings.Contains(c.stdout(), "SBX-113") || !strings.Contains(c.stdout(), "(sandboxes.queue)") {
			t.Errorf("what is one too many: %s", c.stdout())
		}
	}
	if err := making[2].cmd.Process.Signal(syscall.SIGTERM); err != nil { // it is the one that waits
		t.Fatal(err)
	}
	await(t, "an empty queue", func() bool { return queued(t, d) == 0 })
	next := beside(t, d, "create", "--name", "next")
	await(t, "the queue", func() bool { return queued(t, d) == 1 })
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{making[0], making[1], next} {
		if code := c.end(t); code != 0 {
			t.Errorf("%q: code %d %s", c.cmd.Args, code, c.stderr())
		}
	}
	names := map[string]bool{}
	for _, l := range list(t, d) {
		names[l.Name+" "+l.State] = true
	}
	if len(names) != 3 || !names["c0 running"] || !names["c1 running"] || !names["next running"] {
		t.Errorf("there are %v", names)
	}
	d.Run(t, "create", "--name", "late") // what was refused may be asked for again
}

// No more live than may.
func TestMostSandboxes(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {max: 2}\n")
	box(t, d, "one")
	box(t, d, "two")
	f := d.Refused(t, "SBX-113", "run", "--json", "--", "true")
	if f.Error.Message != "there are 2 sandboxes, which is the most (sandboxes.max)" {
		t.Errorf("message %q", f.Error.Message)
	}
	d.Run(t, "rm", "--force", "two")
	d.Run(t, "run", "--", "true")
}
