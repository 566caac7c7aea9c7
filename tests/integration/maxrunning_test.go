package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// running are the names of the sandboxes that run.
func running(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	var names []string
	for _, l := range list(t, d, "--state", "running") {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

// No more sandboxes run than may. Requests past that wait for one to end, in every way that it
// may, and one that is restarted or replaced keeps its turn.
func TestMostRunning(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "warm: 2\nsandboxes: {max_running: 1, queue: 1}\nprofiles: {team: {nested: {}}}\n")
	box(t, d, "one")
	next := beside(t, d, "create", "--name", "two")
	await(t, "the queue", func() bool { return queued(t, d) == 1 })
	d.Refused(t, "SBX-113", "create", "-o", "json", "--name", "three")
	d.Run(t, "restart", "one")
	d.Run(t, "create", "--replace", "--name", "one")
	if got := running(t, d); got != "one" || queued(t, d) != 1 {
		t.Errorf("beside one: %q, and %d wait", got, queued(t, d))
	}
	d.Run(t, "stop", "one") // it is there, and runs no more
	if code := next.end(t); code != 0 || running(t, d) != "two" {
		t.Errorf("after the end of one: code %d, %s, there runs %q", code, next.stderr(), running(t, d))
	}

	d.Kill(t)
	d.Launch(t)
	next = beside(t, d, "create", "--name", "three")
	await(t, "the queue of the next daemon", func() bool { return queued(t, d) == 1 })
	d.Run(t, "rm", "--force", "two")
	if code := next.end(t); code != 0 || running(t, d) != "three" {
		t.Errorf("after the removal of two: code %d, %s, there runs %q", code, next.stderr(), running(t, d))
	}
	d.Run(t, "rm", "--force", "three", "one")

	in := nestedBox(t, d, "outer", "--profile", "team")
	begin := time.Now()
	in.refused(t, "SBX-113", smallBox("child")...)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a child waited %s for its parent to end", took)
	}
	d.Run(t, "rm", "--force", "outer")

	var runs []*client
	for range 2 {
		runs = append(runs, beside(t, d, "run", "--", "sleep", "0.3"))
	}
	for _, r := range runs {
		if code := r.end(t); code != 0 {
			t.Errorf("a run: code %d, %s", code, r.stderr())
		}
	}

	box(t, d, "last")
	late := beside(t, d, "create", "--name", "late")
	await(t, "the queue", func() bool { return queued(t, d) == 1 })
	d.Stop(t)
	if code := late.end(t); code == 0 || !strings.Contains(late.stderr(), "daemon") {
		t.Errorf("under a daemon that stops: code %d, %s", code, late.stderr())
	}
	d.Launch(t)
}
