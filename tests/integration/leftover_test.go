package integration

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// What an ended command left in the background goes on writing to its output,
// whatever ends after it and whatever becomes of the daemon.
func TestLeftBehindProcessesLiveOn(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {kept_execs: 2}\n")
	box(t, d, "left")
	d.Run(t, "exec", "left", "--", "sh", "-c", "("+counting+") & exit 0")
	for range 4 {
		d.Run(t, "exec", "left", "--", "true")
	}
	written := func() int { return len(d.Run(t, "logs", "--exec", "1", "left").Stdout) }
	for range 2 {
		d.Kill(t)
		time.Sleep(100 * time.Millisecond) // in which it writes to nobody
		d.Launch(t)
		before := written()
		await(t, "more of its output", func() bool { return written() > before })
	}
	if r := d.Try("wait", "left", "1"); r.Code != 0 {
		t.Errorf("wait gave %d\n%s", r.Code, r.Stderr)
	}
	checkCount(t, "logs", d.Run(t, "logs", "--exec", "1", "left").Stdout, 100)
	d.Run(t, "exec", "left", "--", "touch", "/tmp/stop")
	await(t, "the end of it", func() bool { return len(ps(t, d, "left")) == 2 })
}
