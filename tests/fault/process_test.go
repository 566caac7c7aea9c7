package fault

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// programs lists the processes that run the named program for d: their command
// line names its state directory, or they are its children.
func programs(t testing.TB, d *harness.Daemon, name string) []int {
	t.Helper()
	var pids []int
	for _, file := range glob(t, "/proc/[0-9]*/cmdline") {
		dir := filepath.Dir(file)
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || filepath.Base(strings.TrimSuffix(exe, " (deleted)")) != name {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(read(file), d.State) || parent(dir) == d.PID() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parent reads the parent of the process whose /proc directory is dir; 0 is one
// that has ended.
func parent(dir string) int {
	for line := range strings.Lines(read(filepath.Join(dir, "status"))) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err == nil {
				return pid
			}
		}
	}
	return 0
}

// kill9 kills one process.
func kill9(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// initOf returns PID 1 of a sandbox.
func initOf(t testing.TB, d *harness.Daemon, ref string) int {
	t.Helper()
	var s struct{ PID int }
	d.Run(t, "inspect", ref, "-o", "json").JSONIn(t, "sandbox", &s)
	if s.PID <= 1 {
		t.Fatalf("sandbox %s has no PID 1", ref)
	}
	return s.PID
}
