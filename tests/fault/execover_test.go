package fault

import (
	"fmt"
	"strings"
	"testing"
)

// A daemon that dies after a command ended in time-out, before the rest of the command was
// ended, leaves that to the next daemon. What an earlier command left goes on (F03).
func TestKilledBeforeTheRestEnds(t *testing.T) {
	b := newBreakable(t, "stop_grace: 1s\n")
	b.Run(t, "create", "--name", "box")
	leaves := func(seconds int) string {
		return fmt.Sprintf("setsid sleep %d > /dev/null 2>&1 & while ! ps -o args | grep -q '^sleep %d'; do usleep 1000; done; ", seconds, seconds)
	}
	asleep := func(seconds int) int {
		t.Helper()
		return strings.Count(b.Run(t, "exec", "box", "--", "ps", "-o", "args").Stdout, fmt.Sprintf("sleep %d\n", seconds))
	}
	groups := func() []string { return glob(t, "/sys/fs/cgroup/*/"+b.Instance()+"/*/command-*") }
	b.Run(t, "exec", "box", "--", "sh", "-c", leaves(50001)) // the control

	b.arm(t, "exec/over=kill")
	exec := begin(t, b.Daemon, "exec", "--timeout", "2s", "box", "--", "sh", "-c", leaves(50002)+"exec sleep 1000")
	b.died(t, "exec/over")
	if r := exec.end(t); r.Code != 124 {
		t.Errorf("the command ended with %+v, want a time-out", r)
	}
	if n := asleep(50002); n != 0 {
		t.Errorf("%d of the command's processes run after its result", n)
	}
	if n := asleep(50001); n != 1 {
		t.Errorf("of the earlier command's processes %d run, want 1", n)
	}
	for range 3 { // the end of a command removes what has become empty
		b.Run(t, "exec", "box", "--", "true")
	}
	if dirs := groups(); len(dirs) != 2 { // that of the earlier command, and a spare one
		t.Errorf("cgroups of commands: %q", dirs)
	}
	b.empty(t)
	if dirs := groups(); len(dirs) != 0 {
		t.Errorf("after the sandbox: %q", dirs)
	}
}
