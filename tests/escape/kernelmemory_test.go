package escape

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
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

// Answers by netlink that nobody reads are charged to no cgroup. The number of netlink
// sockets bounds them, whoever in the sandbox asks: all processes together get no more
// than a few, and the rest wait and get EMFILE.
func TestUnreadNetlinkAnswers(t *testing.T) {
	control := append(harness.NewNamespace(t).Enter(), prober(t), "bomb", "answers")
	out, err := exec.Command(control[0], control[1:]...).CombinedOutput()
	must(t, err)
	var what string
	var free, ms int
	if _, err := fmt.Sscan(string(out), &what, &free, &ms); err != nil || what != "ok" || free < 256<<20 {
		t.Fatalf("unconfined the kernel keeps %d bytes: %s (%v)", free, out, err)
	}
	for _, profile := range []string{"strict", "compat", "debug"} {
		t.Run(profile, func(t *testing.T) {
			held(t, "P119", "unread netlink answers under "+profile)
			what, kept, _ := result(t, bomb(t, []string{"--profile", profile, "-m", "64M", "--cpus", "2"}, "answers"))
			if what != "EMFILE" || kept > mostAnswers(t) || kept < 1<<20 {
				t.Errorf("%s; the kernel keeps %d bytes, without the bound %d", what, kept, free)
			}
			t.Logf("%s: %d bytes instead of %d", profile, kept, free)
		})
	}
}

// mostAnswers is what the sockets of one sandbox may keep: 32 MiB, or four of the largest
// sockets that the host allows, and the answers that fill each.
func mostAnswers(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	must(t, err)
	largest, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	return max(32<<20, 4*2*largest) + 2<<20
}
