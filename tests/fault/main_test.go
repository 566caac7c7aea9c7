// Package fault breaks the real programs: it kills them between any two steps,
// lets steps fail, damages what they keep and puts them under load, and then
// looks for what is left on the host. README.md maps the faults to the tests.
package fault

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves the tests that break none.
var daemon *harness.Daemon

// failing is where a caissond and a caisson-shim are that were built with failpoints.
var failing string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "caisson-fault-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	failing = dir
	if err := errors.Join(
		buildFailing("caisson-shim", "CGO_ENABLED=0", "-tags", "failpoints"),
		buildFailing("caissond", "CGO_ENABLED=1", "-tags", "failpoints netgo osusergo", "-ldflags", `-linkmode external -extldflags "-static"`),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return harness.Main(m, &daemon)
}

// buildFailing builds a program with failpoints as the Makefile builds it without.
func buildFailing(name, cgo string, flags ...string) error {
	args := append([]string{"build", "-o", failing}, flags...)
	build := exec.Command("go", append(args, "github.com/caisson-run/caisson/cmd/"+name)...)
	build.Env = append(os.Environ(), cgo)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s with failpoints: %w\n%s", name, err, out)
	}
	return nil
}

// patience bounds a wait for a condition that a busy machine delays.
const patience = 60 * time.Second

// await waits until ok says so.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(60 * time.Millisecond) { // nothing announces what tests wait for
		if ok() {
			return
		}
	}
	t.Fatalf("no %s within %s", what, patience)
}

// call is a client call that goes on while the daemon is broken.
type call struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// begin starts a client call.
func begin(t testing.TB, d *harness.Daemon, args ...string) *call {
	t.Helper()
	return beginWith(t, d, nil, args...)
}

// beginWith starts a client call that reads stdin.
func beginWith(t testing.TB, d *harness.Daemon, stdin *os.File, args ...string) *call {
	t.Helper()
	c := &call{cmd: d.Command(t.Context(), args...)}
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	if stdin != nil {
		c.cmd.Stdin = stdin
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// end waits for the call's end, which must come by itself.
func (c *call) end(t testing.TB) harness.Result {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait() // the code tells
	if !timer.Stop() {
		t.Errorf("caisson %q did not end within %s", c.cmd.Args[1:], patience)
	}
	return harness.Result{Args: c.cmd.Args[1:], Stdout: c.stdout.String(), Stderr: c.stderr.String(), Code: c.cmd.ProcessState.ExitCode()}
}
