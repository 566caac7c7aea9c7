package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// A daemon that is killed while nothing happens finds all sandboxes again, and
// their ends come when they were to come (F01, F12, F45).
//
//caisson:smoke
func TestKilledIdle(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "stays")
	d.Run(t, "create", "--name", "ends", "--ttl", "1s")
	exec := strings.TrimSpace(d.Run(t, "exec", "-d", "stays", "--", "sh", "-c", "sleep 0.5; echo while away; exit 5").Stdout)
	d.Kill(t)
	time.Sleep(1200 * time.Millisecond) // the TTL and the command end while no daemon is there
	d.Launch(t)
	await(t, "end by TTL", func() bool { return len(list(t, d)) == 1 })
	if r := d.Try("wait", "stays", exec); r.Code != 5 {
		t.Errorf("the command ended with %d, want 5: %s", r.Code, r.Stderr)
	}
	if out := d.Run(t, "logs", "stays", "--exec", exec).Stdout; out != "while away\n" {
		t.Errorf("it printed %q", out)
	}
	checkSound(t, d)
	d.Run(t, "rm", "--force", "stays")
	d.AwaitNoSandbox(t)
}

// The end of what a sandbox stands on is the end of the sandbox, once, with all
// that is its own; others do not notice (F09, F11).
//
//caisson:smoke
func TestKilledBelow(t *testing.T) {
	d := harness.New(t)
	d.Settings = "ids: {blocks: 64}\nsandboxes: {per_shim: 1}\n"
	d.Launch(t)
	for name, victim := range map[string]func(string) int{
		"init": func(id string) int { return initOf(t, d, id) },
		"shim": func(id string) int { return parent(fmt.Sprintf("/proc/%d", initOf(t, d, id))) },
	} {
		t.Run(name, func(t *testing.T) {
			d.Run(t, "create", "--name", "victim")
			d.Run(t, "create", "--name", "other")
			exec := begin(t, d, "exec", "--json", "victim", "--", "sleep", "1000")
			await(t, "command", func() bool { return strings.Contains(d.Run(t, "ps", "victim").Stdout, "sleep") })
			kill9(t, victim("victim"))
			if name == "shim" { // its end alone does not end the processes: who removes the sandbox does
				d.Run(t, "rm", "--force", "victim")
			}
			if r := exec.end(t); r.Code == 0 {
				t.Errorf("the command of a killed sandbox succeeded: %+v", r)
			}
			if name == "init" {
				await(t, "state", func() bool { return strings.Contains(d.Run(t, "ls").Stdout, "exited") })
				d.Refused(t, "SBX-108", "exec", "--json", "victim", "--", "true")
				d.Run(t, "rm", "victim")
			}
			checkSound(t, d)
			d.Run(t, "rm", "--force", "other")
			checkSound(t, d)
		})
	}
	d.Stop(t)
	d.CheckNothingLeft(t)
}

// A shim that several sandboxes share takes none with it that can be told apart:
// all of its sandboxes can be removed, and nothing is left.
func TestKilledSharedShim(t *testing.T) {
	d := harness.New(t)
	d.Settings = "ids: {blocks: 64}\nsandboxes: {per_shim: 4}\n"
	d.Launch(t)
	for i := range 3 {
		d.Run(t, "create", "--name", fmt.Sprint("s", i))
	}
	pids := shims(t, d)
	if len(pids) != 1 {
		t.Errorf("shims %v, want one for three sandboxes", pids)
	}
	for _, pid := range pids {
		kill9(t, pid)
	}
	d.Run(t, "create", "--name", "after") // in another
	checkWorks(t, d, "after")
	for _, s := range list(t, d) {
		d.Run(t, "rm", "--force", s.ID)
	}
	checkSound(t, d)
	d.Stop(t)
	d.CheckNothingLeft(t)
}

// containerd may die while sandboxes run and while they are made: calls fail with
// a code or succeed, never twice (F07, F08).
func TestKilledContainerd(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "runs")
	for i := range 4 {
		key := fmt.Sprint("key", i)
		create := begin(t, d, "create", "--json", "--key", key)
		time.Sleep(time.Duration(20*i) * time.Millisecond) // into different steps
		for _, pid := range programs(t, d, "containerd") {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be the one before
		}
		if r := create.end(t); r.Code != 0 {
			checkTyped(t, r)
		}
		if out := d.Run(t, "exec", "runs", "--", "echo", "on").Stdout; out != "on\n" {
			t.Errorf("printed %q", out)
		}
		await(t, "containerd", func() bool { return d.Try("create", "--json", "--key", key).Code == 0 })
		if n := len(list(t, d)); n != i+2 {
			t.Errorf("%d sandboxes after request %d, want %d", n, i, i+2)
		}
	}
	checkSound(t, d)
	for _, s := range list(t, d) {
		d.Run(t, "rm", "--force", s.ID)
	}
	d.AwaitNoSandbox(t)
	checkSound(t, d)
}

// A daemon and its containerd that die together leave their sandboxes to the
// next ones (F12).
//
//caisson:smoke
func TestKilledTogether(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "stays")
	for _, pid := range programs(t, d, "containerd") {
		kill9(t, pid)
	}
	d.Kill(t)
	d.Launch(t)
	if l := list(t, d); len(l) != 1 {
		t.Errorf("there are %+v, want the sandbox", l)
	}
	checkSound(t, d)
	d.Run(t, "rm", "--force", "stays")
	d.AwaitNoSandbox(t)
}

// A sandbox that ends while no daemon is there is found ended, keeps what its
// commands wrote, and frees what it had (F12).
func TestEndedWhileAway(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "victim")
	d.Run(t, "exec", "victim", "--", "echo", "told")
	pid := initOf(t, d, "victim")
	d.Kill(t)
	kill9(t, pid)
	d.Launch(t)
	checkSound(t, d)
	if r := d.Try("exec", "--json", "victim", "--", "true"); r.Code != 125 {
		t.Errorf("a dead sandbox runs commands: %+v", r)
	}
	if out := d.Run(t, "logs", "victim", "--exec", "1").Stdout; out != "told\n" {
		t.Errorf("kept %q", out)
	}
	d.Run(t, "rm", "victim")
	d.AwaitNoSandbox(t)
}

// A stop goes on when the daemon is killed in it: the sandbox takes nothing more, and
// ends when it was to end.
func TestKilledInStop(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "box")
	deaf := strings.TrimSpace(d.Run(t, "exec", "-d", "box", "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done").Stdout)
	await(t, "command", func() bool { return d.Run(t, "logs", "box", "--exec", deaf).Stdout != "" })
	start := time.Now()
	const grace = 6 * time.Second
	stop := begin(t, d, "stop", "--json", "--grace", grace.String(), "box")
	await(t, "stop", func() bool { return list(t, d)[0].State == "stopping" })
	d.Kill(t)
	d.Launch(t)
	if time.Since(start) < grace {
		d.Refused(t, "SBX-108", "exec", "--json", "box", "--", "true")
	}
	if r := stop.end(t); r.Code != 0 {
		checkTyped(t, r)
	}
	await(t, "end", func() bool { return list(t, d)[0].State == "exited" })
	if took := time.Since(start); took < grace {
		t.Errorf("it ended after %s", took)
	}
	if r := d.Try("wait", "box", deaf); r.Code != 137 {
		t.Errorf("wait: %+v", r)
	}
	d.Run(t, "rm", "box")
	d.AwaitNoSandbox(t)
}

// A paused sandbox can be killed, stopped and removed, also after the daemon's
// death (F51, F52).
func TestPausedThenEnded(t *testing.T) {
	d := harness.Start(t)
	for name, end := range map[string]func(string){
		"rm":   func(id string) { d.Run(t, "rm", "--force", id) },
		"stop": func(id string) { d.Run(t, "stop", "--grace", "0s", id); d.Run(t, "rm", id) },
		"init": func(id string) { kill9(t, initOf(t, d, id)); d.Run(t, "rm", "--force", id) },
		"daemon": func(id string) {
			d.Kill(t)
			d.Launch(t)
			d.Refused(t, "SBX-114", "exec", "--json", id, "--", "true")
			d.Run(t, "resume", id)
			checkWorks(t, d, id)
			d.Run(t, "rm", "--force", id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(d.Run(t, "create").Stdout)
			d.Run(t, "exec", "-d", id, "--", "sleep", "1000")
			d.Run(t, "pause", id)
			d.Refused(t, "SBX-114", "exec", "--json", id, "--", "true")
			start := time.Now()
			end(id)
			if took := time.Since(start); took > patience {
				t.Errorf("the end took %s", took)
			}
			checkSound(t, d)
		})
	}
}

// A mount that is busy on the host does not keep a sandbox from being removed
// (F39).
func TestBusyMount(t *testing.T) {
	id := strings.TrimSpace(daemon.Run(t, "create").Stdout)
	dir, err := os.Open(fmt.Sprintf("/proc/%d/root/", initOf(t, daemon, id)))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	host, err := os.Open(filepath.Join(daemon.State, "sandboxes", id, "rootfs"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	daemon.Run(t, "rm", "--force", id)
	checkSound(t, daemon)
}
