package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// stopAll runs caissond --stop-all on the directories of d.
func stopAll(t *testing.T, d *harness.Daemon) (said string, err error) {
	t.Helper()
	flags := []string{"--stop-all", "--config", filepath.Join(d.Root, "config.yaml"), "--root", d.Root, "--state", d.State}
	out, err := exec.CommandContext(t.Context(), harness.Bin(t, "caissond"), flags...).CombinedOutput()
	return string(out), err
}

// The sandboxes that a stopped or killed daemon left end by one command, which leaves nothing.
// Under a daemon that runs it ends none.
func TestStopAll(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "# the default of keep_on_exit\nwarm: 2\n")
	d.Run(t, "create", "--name", "session", "--network", "allow")
	start(t, d, "session", "sleep", "1000")
	d.Run(t, "run", "-d", "--name", "job", "--", "sleep", "1000")
	if out, err := stopAll(t, d); err == nil || !strings.Contains(out, "SBX-110") || !strings.Contains(out, "caisson rm --all --force") {
		t.Errorf("beside the daemon: %v\n%s", err, out)
	}
	if got := len(list(t, d)); got != 2 {
		t.Errorf("%d sandboxes are left of 2", got)
	}
	pids := []int{inspect(t, d, "session").PID, inspect(t, d, "job").PID}
	d.Kill(t)
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("%d ended with its daemon", pid)
		}
	}
	for range 2 { // the second one finds nothing to do
		if out, err := stopAll(t, d); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("%d is alive", pid)
			}
		}
		d.CheckNothingLeft(t)
	}
	d.Launch(t)
	if got := list(t, d); len(got) != 0 {
		t.Errorf("the next daemon finds %+v", got)
	}
	d.Run(t, "run", "--", "true")
}
