package ctrd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// slack is how late timers of a thread may be, in ns.
func slack(t *testing.T, tid string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", tid, "timerslack_ns"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// The engine's timers may be late, which is passed on; those of a container are not.
func TestTimersOfContainersArePunctual(t *testing.T) {
	usual := slack(t, "self")
	e := connect(t, supervise(t))
	pid := start(t, e, sandbox(t, "timers"))
	if got, late := slack(t, fmt.Sprint(parentOf(t, pid))), fmt.Sprint(engineSlack); got != late || usual == late {
		t.Errorf("the shim's slack is %s ns, want %s; here it is %s", got, late, usual)
	}
	if got := slack(t, fmt.Sprint(pid)); got != usual {
		t.Errorf("the container's slack is %s ns, want %s", got, usual)
	}
}

// When the engine is gone, no thread of ours is late.
func TestSupervisorLeavesThreadsPunctual(t *testing.T) {
	usual := slack(t, "self")
	supervise(t).Stop()
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(threads) == 0 {
		t.Fatal(err, threads)
	}
	for _, thread := range threads {
		if got := slack(t, filepath.Base(thread)); got != usual {
			t.Errorf("a thread of ours is left with a slack of %s ns, want %s", got, usual)
		}
	}
}
