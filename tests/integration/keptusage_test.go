package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// usedOverTime is the JSON form of a history.
type usedOverTime struct {
	State   string `json:"state"`
	Samples []struct {
		Time        time.Time `json:"time"`
		MemoryBytes int64     `json:"memory_bytes"`
	} `json:"samples"`
}

func historyOf(t *testing.T, d *harness.Daemon, name string) (u usedOverTime) {
	t.Helper()
	d.Run(t, "history", "--json", name).JSON(t, &u)
	return u
}

// sampled waits until the daemon has samples of a sandbox with so much memory.
func sampled(t *testing.T, d *harness.Daemon, name string, memory int64) {
	t.Helper()
	await(t, "samples of "+name, func() bool { return mostMemory(historyOf(t, d, name)) >= memory })
}

func mostMemory(u usedOverTime) (most int64) {
	for _, s := range u.Samples {
		most = max(most, s.MemoryBytes)
	}
	return most
}

// TestUsageIsKept: what a sandbox used is on its last event, and its curve is kept when it
// has ended, when it is removed, and when the daemon is another one.
func TestUsageIsKept(t *testing.T) {
	t.Parallel()
	const stays = "# the default of keep_on_exit\n"
	d := harness.StartWith(t, stays+"sandboxes: {kept_usage: 2}\n"+peers)
	const filled = 8 << 20
	fill := "head -c 8388608 /dev/zero > /tmp/big; sleep 1000"
	lives := box(t, d, "lives")
	d.Run(t, "exec", "-d", lives, "--", "sh", "-c", fill)
	d.Run(t, "run", "-d", "--name", "ends", "--", "sh", "-c", fill)
	d.Run(t, "run", "-d", "--name", "goes", "--", "sh", "-c", fill)
	for _, name := range []string{"lives", "ends", "goes"} {
		sampled(t, d, name, filled)
	}
	d.Run(t, "stop", "--grace", "0s", "ends")
	d.Run(t, "rm", "--force", "goes")
	if u := historyOf(t, d, "goes"); u.State != "removed" || mostMemory(u) < filled {
		t.Errorf("of one that is removed: %+v", u)
	}
	d.User(t, ann).Refused(t, "SBX-107", "history", "--json", "goes")
	var last struct {
		CPU         harness.Duration
		PeakMemory  int64  `json:"peak_memory_bytes"`
		ExpectEnded string `json:"reason"`
	}
	d.Run(t, "events", "--format", "{{json .data}}", "--filter", "type=sandbox.ended", "--filter", "sandbox=goes").JSON(t, &last)
	if last.CPU.Duration <= 0 || last.PeakMemory < filled || last.ExpectEnded == "" {
		t.Errorf("its last event: %+v", last)
	}
	d.Stop(t)
	restart := time.Now()
	d.Config = strings.TrimPrefix(d.Config, stays) // nothing stays after the test
	d.Launch(t)
	for _, name := range []string{"lives", "ends"} {
		if u := historyOf(t, d, name); mostMemory(u) < filled || u.Samples[0].Time.After(restart) {
			t.Errorf("of %s, with the next daemon: %+v", name, u)
		}
	}
	if used := statsOf(t, d, "ends")["ends"]; used.CPU.Milliseconds() <= 0 {
		t.Errorf("of one that had ended before the daemon: %+v", used)
	}
	d.Refused(t, "SBX-107", "history", "--json", "goes") // two are kept, and it was the first
}
