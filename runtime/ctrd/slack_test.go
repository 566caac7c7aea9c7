package ctrd

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The engine's timers may be late, which is passed on; those of a container are not.
func TestTimersOfContainersArePrecise(t *testing.T) {
	e := connect(t, supervise(t))
	pid := start(t, e, sandbox(t, "timers"))
	slack := func(pid int) string {
		t.Helper()
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	if got := slack(parentOf(t, pid)); got != fmt.Sprint(engineSlack) {
		t.Errorf("the shim's slack is %s ns, want %d", got, engineSlack)
	}
	if got, own := slack(pid), slack(os.Getpid()); got != own {
		t.Errorf("the container's slack is %s ns, want %s as here", got, own)
	}
}
