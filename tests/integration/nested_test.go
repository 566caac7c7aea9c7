package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// inside is the client of a sandbox with a socket of its own, as its commands
// have it.
type inside struct {
	daemon *harness.Daemon
	name   string
	call   []string // how the daemon's own client reaches it
}

// insideOf is the client in the workspace of a sandbox.
func insideOf(d *harness.Daemon, name string) inside {
	return inside{d, name, []string{"exec", name, "--", "/workspace/caisson"}}
}

// within is the client in a child, which it copies there.
func (i inside) within(t *testing.T, child string) inside {
	t.Helper()
	i.run(t, "cp", "/workspace/caisson", child+":/tmp/caisson")
	return inside{i.daemon, child, append(slices.Clone(i.call), "exec", child, "--", "/tmp/caisson")}
}

// withClient returns a directory that holds the client, as the workspace of a
// sandbox that is to use it.
func withClient(t *testing.T) string {
	t.Helper()
	dir := workspace(t, 0, 0)
	program, err := os.ReadFile(harness.Bin(t, "caisson"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "caisson"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nestedBox makes a sandbox that may make others.
func nestedBox(t *testing.T, d *harness.Daemon, name string, flags ...string) inside {
	t.Helper()
	box(t, d, name, append([]string{"--nested", "-m", "256M", "--cpus", "2", "--workspace", withClient(t) + ":ro"}, flags...)...)
	return insideOf(d, name)
}

func (i inside) try(args ...string) harness.Result {
	return i.daemon.Try(append(slices.Clone(i.call), args...)...)
}

func (i inside) run(t *testing.T, args ...string) string {
	t.Helper()
	r := i.try(args...)
	if r.Code != 0 {
		t.Fatalf("inside of %s: caisson %q: exit code %d\n%s%s", i.name, args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func (i inside) refused(t *testing.T, code string, args ...string) harness.Failure {
	t.Helper()
	return i.try(args...).Refused(t, code)
}

// small are limits of which several children fit into their parent's.
var small = []string{"-m", "64M", "--cpus", "0.5", "--pids", "50"}

func smallBox(name string, more ...string) []string {
	return append(append([]string{"create", "-o", "json", "--name", name}, small...), more...)
}

// From inside of a sandbox its own children are made, used and removed as from
// outside.
func TestNestedChildren(t *testing.T) {
	d := harness.StartWith(t, "profiles: {team: {nested: {enter: true}}}\n")
	in := nestedBox(t, d, "outer", "--profile", "team")
	box(t, d, "plain", "--workspace", withClient(t)+":ro")
	insideOf(d, "plain").refused(t, "SBX-802", "ls", "-o", "json") // without --nested there is no socket
	in.run(t, smallBox("child")...)
	if out := in.run(t, "exec", "child", "--", "sh", "-c", "echo $((6*7)) > /tmp/a; cat /tmp/a; echo $CAISSON_SOCKET"); out != "42\n\n" {
		t.Errorf("the child said %q", out)
	}
	job := strings.TrimSpace(in.run(t, "exec", "-d", "child", "--", "sh", "-c", "echo kept; sleep 1000"))
	if out := in.run(t, "cp", "child:/tmp/a", "/tmp/b") + d.Run(t, "exec", "outer", "--", "cat", "/tmp/b").Stdout; out != "42\n" {
		t.Errorf("copied %q", out)
	}
	in.run(t, "kill", "-s", "KILL", "child", job)
	if r := in.try("wait", "child", job); r.Code != 137 {
		t.Errorf("wait: code %d %s", r.Code, r.Stderr)
	}
	if out := in.run(t, "logs", "--exec", job, "child"); out != "kept\n" {
		t.Errorf("logs %q", out)
	}
	in.run(t, "pause", "child")
	in.refused(t, "SBX-114", "exec", "--json", "child", "--", "true")
	in.run(t, "resume", "child")
	in.run(t, "update", "--pids", "40", "child")
	if out := in.run(t, append(append([]string{"run"}, small...), "--", "echo", "hi")...); out != "hi\n" {
		t.Errorf("a run of its own said %q", out)
	}
	outer := inspect(t, d, "outer")
	if l := inspect(t, d, "child"); l.Parent != outer.ID || l.Limits.PIDs != 40 {
		t.Errorf("from outside: %+v", l)
	}
	in.run(t, "rm", "--force", "child")
	in.refused(t, "SBX-107", "inspect", "-o", "json", "child")
}

// Without a word in the profile a sandbox does not enter its children: it gets their state,
// result and output. From outside the same calls succeed, before a restart and after.
func TestNestedDoesNotEnter(t *testing.T) {
	d := harness.StartWith(t, "")
	in := nestedBox(t, d, "outer")
	in.run(t, smallBox("child")...)
	check := func() {
		t.Helper()
		for _, call := range [][]string{
			{"exec", "--json", "child", "--", "true"}, {"exec", "--json", "-d", "child", "--", "true"},
			{"cp", "--json", "child:/etc/passwd", "/tmp/copy"}, {"cp", "--json", "/etc/passwd", "child:/tmp/put"},
		} {
			f := in.refused(t, "SBX-805", call...)
			if !strings.Contains(f.Error.Message+f.Error.Cause, "does not enter its children") || !strings.Contains(f.Error.Remedy, "nested.enter") {
				t.Errorf("%q: %+v", call, f.Error)
			}
		}
		d.Run(t, "exec", "child", "--", "true")
		d.Run(t, "exec", "child", "--", "test", "!", "-e", "/tmp/put")
		d.Run(t, "cp", "child:/etc/passwd", filepath.Join(t.TempDir(), "copy"))
	}
	check()
	id := strings.TrimSpace(in.run(t, append(append([]string{"run", "-d", "--name", "job"}, small...), "--", "sh", "-c", "echo made; exit 3")...))
	if r := in.try("wait", id); r.Code != 3 {
		t.Errorf("wait: code %d %s", r.Code, r.Stderr)
	}
	if out := in.run(t, "logs", id); out != "made\n" {
		t.Errorf("logs %q", out)
	}
	in.run(t, "inspect", id)
	d.Kill(t)
	d.Launch(t)
	check()
}

// What is not its own child is to a sandbox as if it were not there. From
// outside each of the calls succeeds.
func TestNestedSeesNothingElse(t *testing.T) {
	in, other := nestedBox(t, daemon, "outer"), nestedBox(t, daemon, "other")
	foreign := box(t, daemon, "roots", small...)
	other.run(t, smallBox("cousin")...)
	in.run(t, smallBox("child")...)
	var own []listed
	in.try("ls", "-o", "json").JSON(t, &own)
	if len(own) != 1 || own[0].Name != "child" {
		t.Errorf("it sees %+v", own)
	}
	for _, ref := range []string{"roots", foreign, foreign[:8], "cousin", "other", "outer"} {
		job := start(t, daemon, ref, "sleep", "1000")
		for _, call := range [][]string{
			{"inspect", "-o", "json", ref}, {"ps", "-o", "json", ref}, {"logs", "-o", "json", "--exec", job, ref},
			{"exec", "--json", ref, "--", "true"}, {"update", "-o", "json", "-l", "a=b", ref}, {"cp", "--json", ref + ":/etc/passwd", "/tmp/stolen"},
			{"kill", "-o", "json", "-s", "KILL", ref, job},
		} {
			if f := in.refused(t, "SBX-107", call...); !strings.Contains(f.Error.Message, "no sandbox \""+ref+"\"") {
				t.Errorf("%q: %+v", call, f.Error)
			}
			call[len(call)-1] = strings.Replace(call[len(call)-1], "/tmp/stolen", filepath.Join(t.TempDir(), "copy"), 1)
			daemon.Run(t, call...)
		}
		for _, verb := range []string{"pause", "resume", "stop", "wait"} {
			in.refused(t, "SBX-107", verb, "-o", "json", ref)
		}
		in.refused(t, "SBX-107", "rm", "-o", "json", "--force", ref)
	}
	for _, call := range [][]string{{"image", "ls"}, {"image", "inspect", "base"}, {"capabilities"}} {
		call = append(call, "-o", "json")
		in.refused(t, "SBX-805", call...)
		daemon.Run(t, call...)
	}
	var counted struct{ Sandboxes map[string]int }
	in.try("info", "-o", "json").JSON(t, &counted)
	if len(counted.Sandboxes) != 1 || counted.Sandboxes["running"] != 1 {
		t.Errorf("it counts %+v", counted)
	}
	if out := in.run(t, "version", "-o", "json"); !strings.Contains(out, `"daemon": null`) {
		t.Errorf("it is told of the daemon: %s", out)
	}
	for _, call := range [][]string{{"image", "rm", "base"}, {"cleanup"}, {"image", "from-host", "mine", "--package", "bash"}, {"doctor"}} {
		in.refused(t, "SBX-805", append(call, "-o", "json")...)
	}
}

// A sandbox of the same name inside is not what root's own name means, be it
// before root's is made or after.
func TestNestedNameIsNotRoots(t *testing.T) {
	in := nestedBox(t, daemon, "outer")
	in.run(t, smallBox("agent")...)
	id := box(t, daemon, "agent", append([]string{"--ensure"}, small...)...)
	for range 5 {
		if l := inspect(t, daemon, "agent"); l.ID != id || l.Parent != "" {
			t.Fatalf("root's agent is %+v", l)
		}
	}
	var l listed
	in.try("inspect", "-o", "json", "agent").JSONIn(t, "sandbox", &l)
	if l.ID == id || l.Parent == "" {
		t.Errorf("the inner agent is %+v", l)
	}
	daemon.Run(t, "rm", "--force", "agent")
	in.run(t, "inspect", "agent")
}

// Beyond its budget a sandbox makes nothing. The same is made from outside.
func TestNestedBudget(t *testing.T) {
	in := nestedBox(t, daemon, "outer", "--nested-max", "3", "--ttl", "1h") // 256M, 2 CPUs, 256 processes
	for i, tt := range []struct {
		says  string
		flags []string
	}{
		{"memory 300M is above the ceiling 256M", []string{"-m", "300M"}},
		{"cpus 2.500 is above the ceiling 2.000", []string{"--cpus", "2.5"}},
		{"pids 5000 is above the ceiling", []string{"--pids", "5000"}},
		{"tmpfs 1024M is above the ceiling", []string{"--tmpfs", "1G"}},
		{"ttl 2h0m0s is above the ceiling", []string{"--ttl", "2h"}},
		{`profile "compat" is none of strict`, []string{"--profile", "compat"}},
		{"a child gets no socket", []string{"--nested"}},
		{"lies outside of its workspace", []string{"--workspace", "/etc"}},
		{"no directories of the host", []string{"--mount", "type=bind,src=/workspace,dst=/data"}},
	} {
		f := in.refused(t, "SBX-805", smallBox("child", tt.flags...)...)
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, tt.says) {
			t.Errorf("%q: it does not say %q: %s", tt.flags, tt.says, all)
		}
		if tt.flags[0] != "--workspace" && tt.flags[0] != "--mount" {
			box(t, daemon, "control-"+string(rune('a'+i)), append(append([]string{}, small...), tt.flags...)...)
		}
	}
	in.run(t, smallBox("one", "-m", "128M")...)
	f := in.refused(t, "SBX-113", smallBox("two", "-m", "129M")...)
	if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, "memory 129M is above the 128M left of the budget of sandbox") {
		t.Errorf("message %q", all)
	}
	in.run(t, smallBox("two")...)
	in.refused(t, "SBX-113", "update", "-o", "json", "-m", "129M", "two")
	in.run(t, "update", "-m", "64M", "--pids", "49", "two")
	in.refused(t, "SBX-805", "update", "-o", "json", "--ttl", "never", "two")
	in.run(t, smallBox("three")...)
	in.refused(t, "SBX-113", smallBox("four", "-m", "16M")...) // three are the most
	in.run(t, "rm", "--force", "three")
	in.run(t, smallBox("four")...)                                                                                                        // what is gone counts no more
	if l := inspect(t, daemon, "four"); l.ExpiresAt == nil || l.ExpiresAt.After(inspect(t, daemon, "outer").ExpiresAt.Add(time.Minute)) { // how long its making took
		t.Errorf("a child expires at %v, after its parent", l.ExpiresAt)
	}
	daemon.Refused(t, "SBX-102", "create", "-o", "json", "--nested-max", "0")
}

// Who pauses a sandbox pauses it alone: its children run on, or stay paused, and end with
// it all the same.
func TestNestedPause(t *testing.T) {
	in := nestedBox(t, daemon, "outer")
	in.run(t, smallBox("awake")...)
	in.run(t, smallBox("asleep")...)
	daemon.Run(t, "exec", "-d", "awake", "--", "sh", "-c", "while :; do echo tick; sleep 0.02; done")
	in.run(t, "pause", "asleep")
	states := func(outer string) {
		t.Helper()
		for name, want := range map[string]string{"outer": outer, "awake": "running", "asleep": "paused"} {
			if state := inspect(t, daemon, name).State; state != want {
				t.Errorf("%s is %s, want %s", name, state, want)
			}
		}
	}
	daemon.Run(t, "pause", "outer")
	states("paused")
	daemon.Refused(t, "SBX-114", "exec", "--json", "outer", "--", "true")
	before := ps(t, daemon, "awake")[0].StdoutBytes
	await(t, "ticks of a child", func() bool { return ps(t, daemon, "awake")[0].StdoutBytes > before+20 }) // more than one in the pipe
	daemon.Run(t, "exec", "awake", "--", "true")
	daemon.Refused(t, "SBX-114", "exec", "--json", "asleep", "--", "true")
	daemon.Run(t, "resume", "outer")
	states("running")
	daemon.Refused(t, "SBX-114", "exec", "--json", "asleep", "--", "true")
	in.run(t, "inspect", "awake")
	daemon.Run(t, "pause", "outer")
	daemon.Run(t, "rm", "--force", "outer")
	daemon.AwaitNoSandbox(t)
}

// Children end with their parent, and those that had ended go with it, also where
// that happens while no daemon is there; and their parent goes on with them under the next daemon.
func TestNestedEnd(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	in := nestedBox(t, d, "outer")
	in.run(t, smallBox("first")...)
	d.Kill(t)
	d.Launch(t)
	in.run(t, "inspect", "first")
	in.run(t, smallBox("second")...)
	in.run(t, smallBox("over")...)
	in.run(t, "stop", "over")
	d.Run(t, "rm", "--force", "outer")
	await(t, "the end of the children", func() bool { return len(list(t, d)) == 0 })
	d.AwaitNoSandbox(t)

	in = nestedBox(t, d, "outer")
	in.run(t, smallBox("orphan")...)
	in.run(t, smallBox("over")...)
	in.run(t, "stop", "over")
	box(t, d, "other")
	pid := inspect(t, d, "outer").PID
	d.Kill(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.Launch(t)
	await(t, "the end of the orphan", func() bool { return len(list(t, d)) == 2 })
	d.Run(t, "exec", "other", "--", "true")
	d.Run(t, "rm", "outer") // which has ended, and kept what it wrote
}
