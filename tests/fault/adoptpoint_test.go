package fault

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/tests/need"
)

// A daemon that is killed at any step of going on with a sandbox leaves it to the next one, as it
// was: with its command, its ports and its socket (F02).
func TestKilledInAdoption(t *testing.T) {
	b := newBreakable(t, withNested)
	b.Run(t, slices.Concat([]string{"create", "--name", "kept"}, mounted(t))...)
	b.Run(t, "exec", "-d", "kept", "--", "sleep", "1000")
	runs := []string{"exec", "kept", "--", "sh", "-c", "pidof sleep && test -S $CAISSON_SOCKET"}
	b.Run(t, runs...)
	ports := b.Run(t, "port", "kept").Stdout
	for _, step := range need.Turn(t, runtime.AdoptedStages()) {
		t.Run(step, func(t *testing.T) {
			b.Kill(t)
			b.arm(t, "adopt/"+step+"=kill")
			b.Spawn(t, b.flags...)
			b.died(t, "adopt/"+step)
			if l := b.others(t); len(l) != 1 || l[0].Name != "kept" || l[0].State != "running" {
				t.Errorf("there are %+v", l)
			}
			b.Run(t, runs...)
			if now := b.Run(t, "port", "kept").Stdout; now != ports || ports == "" {
				t.Errorf("the ports are %q, and were %q", now, ports)
			}
			checkSound(t, b.Daemon)
		})
	}
	b.empty(t)
}

// A step of going on with a sandbox that fails has it removed whole, and the log says why (F23).
func TestFailureInAdoption(t *testing.T) {
	b := newBreakable(t, withNested)
	for _, step := range need.Turn(t, runtime.AdoptedStages()) {
		t.Run(step, func(t *testing.T) {
			b.Run(t, slices.Concat([]string{"create", "--name", "doomed"}, mounted(t))...)
			b.Run(t, "exec", "-d", "doomed", "--", "sleep", "1000")
			b.Kill(t)
			b.arm(t, "adopt/"+step+"=error")
			b.Launch(t, b.flags...)
			await(t, "the end of the sandbox", func() bool { return len(b.others(t)) == 0 })
			b.disarm(t)
			checkSound(t, b.Daemon)
			if !strings.Contains(b.Log(), "adopt "+step+": ") {
				t.Errorf("the log does not say why:\n%s", b.Log())
			}
		})
	}
}
