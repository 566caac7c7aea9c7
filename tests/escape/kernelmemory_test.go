package escape

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// Kernel memory that no cgroup counts is counted from outside: a sandbox that takes too
// much of it is ended, with a reason of its own, and its owner is told.
func TestUncountedKernelMemory(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"file locks", []string{"locks", "/tmp"}},
		{"connections that nobody accepts", []string{"unaccepted"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			held(t, "P119", tt.name)
			control := append(harness.NewNamespace(t).Enter(), prober(t), "bomb", tt.args[0], t.TempDir())
			out, err := exec.Command(control[0], control[1:]...).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "ok ") {
				t.Fatalf("unconfined: %v: %s", err, out)
			}
			r := bomb(t, []string{"-m", "64M"}, tt.args...)
			if tt.args[0] == "unaccepted" && r.Reason == "oom" {
				return // a kernel that charges them itself, as Linux 6.1 does with cgroup v2
			}
			told := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "SBX-503") })
			if r.Reason != "kernel_memory" || r.Source != "runtime" || r.ExitCode != 137 || !told {
				t.Errorf("result %+v", r)
			}
		})
	}
}
