package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// leaves starts five processes that no signal to the command's group and no look at its
// session finds or ends: in a session of its own, daemonized, one that ignores TERM and one
// that is stopped, each asleep for so many seconds. The stopped one has a shell around it.
func leaves(seconds int) string {
	return fmt.Sprintf(`out=/dev/null
setsid sleep %[1]d > $out 2>&1 &
(setsid sh -c 'sleep %[1]d & exec sleep %[1]d' > $out 2>&1 &)
(trap '' TERM; exec setsid sleep %[1]d > $out 2>&1) &
sh -c 'kill -STOP $$; exec sleep %[1]d' > $out 2>&1 &
while [ $(ps -o args | grep -c "^sleep %[1]d") -lt 4 ]; do usleep 1000; done
`, seconds)
}

// asleep counts the processes that leaves made and that are in the sandbox, the stopped
// one among them.
func asleep(t *testing.T, d *harness.Daemon, ref string, seconds int) int {
	t.Helper()
	out := d.Run(t, "exec", ref, "--", "ps", "-o", "args").Stdout
	n := 0
	for line := range strings.Lines(out) {
		if strings.HasSuffix(line, fmt.Sprintf("sleep %d\n", seconds)) {
			n++
		}
	}
	return n
}

// left is what leaves makes.
const left = 5

// commandGroups lists the cgroups of the commands of d.
func commandGroups(t *testing.T, d *harness.Daemon) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + d.Instance() + "/*/command-*", "/sys/fs/cgroup/" + d.Instance() + "/*/init/command-*"} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			if s, err := os.Stat(dir); err == nil && s.IsDir() {
				found = append(found, dir)
			}
		}
	}
	return found
}

// All that a command started ends with it when its time is over, it is killed with all
// that it started, or its client dies. What an earlier command left goes on, and a command
// that exits by itself leaves what it started.
//
//caisson:kernel
func TestWhatIsOverIsOver(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "stop_grace: 1s\nsandboxes: {attach_grace: 500ms}\n")
	box(t, d, "over")
	d.Run(t, "exec", "over", "--", "sh", "-c", leaves(40001)) // the control
	stays := func(after string) {
		t.Helper()
		if n := asleep(t, d, "over", 40001); n != left {
			t.Errorf("after %s: of the earlier command's processes %d run, want %d", after, n, left)
		}
	}
	stays("the command's own end")
	gone := func(after string, seconds int) {
		t.Helper()
		await(t, "the end of all of the command after "+after, func() bool { return asleep(t, d, "over", seconds) == 0 })
		stays(after)
	}

	r := execJSON(t, d, "--timeout", "1s", "over", "--", "sh", "-c", leaves(40002)+"sleep 1000")
	if n := asleep(t, d, "over", 40002); !r.TimedOut || r.EndedProcesses < 4 || n > 0 {
		t.Errorf("time-out: %d run on, %+v", n, r)
	}
	stays("a time-out")
	r = execJSON(t, d, "--timeout", "1s", "over", "--", "sh", "-c", "trap '' TERM; "+leaves(40003)+"while true; do sleep 1; done")
	if n := asleep(t, d, "over", 40003); !r.TimedOut || r.Signal != int(syscall.SIGKILL) || r.EndedProcesses < left || n > 0 {
		t.Errorf("time-out of one that ignores TERM: %d run on, %+v", n, r)
	}
	stays("a time-out of one that ignores TERM")

	c := beside(t, d, "exec", "over", "--", "sh", "-c", leaves(40004)+"echo up; sleep 1000")
	c.awaitStdout(t, "up\n")
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone("the death of its client", 40004)

	number := start(t, d, "over", "sh", "-c", leaves(40005)+"echo up; sleep 1000")
	await(t, "the command", func() bool { return d.Run(t, "logs", "--exec", number, "over").Stdout == "up\n" })
	d.Run(t, "kill", "--all", "-s", "KILL", "over", number)
	gone("a kill of all", 40005)
	for _, j := range ps(t, d, "over") {
		if j.ID == number && (j.Result == nil || j.Result.EndedProcesses != left) {
			t.Errorf("the killed command: %+v", j.Result)
		}
	}
	if dirs := commandGroups(t, d); len(dirs) > 3 {
		t.Errorf("cgroups of commands: %q", dirs)
	}
	d.Run(t, "rm", "--force", "over")
	if dirs := commandGroups(t, d); len(dirs) > 0 {
		t.Errorf("after the sandbox: %q", dirs)
	}
}
