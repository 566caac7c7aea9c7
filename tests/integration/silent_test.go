package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// silence stops PID 1 of a sandbox from the host, as one is that a command has kept
// from answering, and returns what lets it go on.
func silence(t *testing.T, pid int) (again func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
}

// relaunchWithSilent restarts a daemon that was killed, beside sandboxes whose PID 1
// does not answer. It must not wait for these.
func relaunchWithSilent(t *testing.T, d *harness.Daemon) {
	t.Helper()
	begin := time.Now()
	d.Launch(t)
	if took := time.Since(begin); took > 6*time.Second {
		t.Errorf("the daemon was ready after %s", took)
	}
}

// A sandbox that does not answer a new daemon delays no other, and is gone on with
// when it does.
func TestSilentSandboxDelaysNobody(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "calm")
	box(t, d, "silent", "-m", "64M")
	calm := beside(t, d, "exec", "calm", "--", "sh", "-c", counting)
	calm.awaitStdout(t, "9\n")
	job := start(t, d, "silent", "sh", "-c", counting)
	pid := inspect(t, d, "silent").PID
	d.Kill(t)
	again := silence(t, pid)
	relaunchWithSilent(t, d)
	states := map[string]string{}
	for _, l := range list(t, d) {
		states[l.Name] = l.State
	}
	if len(states) != 2 || states["silent"] != "adopting" || states["calm"] != "running" {
		t.Errorf("listed %v", states)
	}
	d.Run(t, "exec", "calm", "--", "touch", "/tmp/stop")
	if code := calm.end(t); code != 9 {
		t.Errorf("exec in the other ended with %d: %s", code, calm.stderr())
	}
	d.Refused(t, "SBX-106", "create", "--name", "silent", "-o", "json")
	waiting := beside(t, d, "exec", "silent", "--", "touch", "/tmp/stop")
	ensured := beside(t, d, "create", "--ensure", "--name", "silent", "-m", "64M")
	again()
	for what, c := range map[string]*client{"exec": waiting, "create --ensure": ensured} {
		if code := c.end(t); code != 0 {
			t.Errorf("%s ended with %d: %s", what, code, c.stderr())
		}
	}
	if r := d.Try("wait", "silent", job); r.Code != 9 {
		t.Errorf("wait gave %d: %s", r.Code, r.Stderr)
	}
	if l := inspect(t, d, "silent"); l.State != "running" || l.PID != pid || len(l.Posture) < 20 {
		t.Errorf("it is %+v", l)
	}
}

// One that never answers is ended, with the sandboxes that it made; it can be
// removed before.
func TestSilentSandboxEnds(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	in := nestedBox(t, d, "silent")
	in.run(t, smallBox("child")...)
	box(t, d, "removed")
	box(t, d, "calm")
	silent, removed := inspect(t, d, "silent").PID, inspect(t, d, "removed").PID
	d.Kill(t)
	for _, pid := range []int{silent, removed} {
		silence(t, pid)
	}
	relaunchWithSilent(t, d)
	begin := time.Now()
	d.Run(t, "rm", "--force", "removed")
	if took := time.Since(begin); alive(removed) || took > 6*time.Second {
		t.Errorf("removed after %s, alive: %t", took, alive(removed))
	}
	if r := d.Try("exec", "silent", "--", "true"); r.Code != 125 {
		t.Errorf("exec ended with %d: %s", r.Code, r.Stderr)
	}
	await(t, "the end of the silent one", func() bool { return len(list(t, d)) == 1 })
	if alive(silent) {
		t.Error("its PID 1 lives on")
	}
	if log := d.Log(); !strings.Contains(log, "did not connect within 10s") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	d.Run(t, "rm", "--force", "calm")
	d.AwaitNoSandbox(t)
}

// A daemon that is to leave its sandboxes leaves one that has not answered as well.
func TestSilentSandboxIsLeft(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {keep_on_exit: true}\n")
	box(t, d, "silent")
	box(t, d, "paused")
	start(t, d, "paused", "sh", "-c", "while :; do echo tick; usleep 10000; done")
	d.Run(t, "pause", "paused")
	pid := inspect(t, d, "silent").PID
	d.Kill(t)
	again := silence(t, pid)
	relaunchWithSilent(t, d)
	d.Stop(t)
	if !alive(pid) {
		t.Fatal("it ended with the daemon")
	}
	again()
	d.Config = ""
	d.Launch(t)
	d.Run(t, "exec", "silent", "--", "true")
	if l := inspect(t, d, "paused"); l.State != "paused" {
		t.Errorf("the paused one is %s", l.State)
	}
}
