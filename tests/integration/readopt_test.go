package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// counting prints numbers until /tmp/stop is there.
const counting = `i=0; while [ ! -e /tmp/stop ]; do echo $i; i=$((i+1)); usleep 1000; done; exit 9`

// checkCount fails t unless text counts from 0 on without a gap, up to at least
// least.
func checkCount(t *testing.T, who, text string, least int) {
	t.Helper()
	n := 0
	for line := range strings.Lines(text) {
		if line != fmt.Sprintf("%d\n", n) {
			t.Errorf("%s: line %d is %q", who, n, line)
			return
		}
		n++
	}
	if n < least {
		t.Errorf("%s: it counts to %d, want at least %d", who, n, least)
	}
}

// Who watches a command sees no gap while the daemon, then containerd, and the
// daemon again are killed, and no exit code is lost.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	id := box(t, d, "counter", "-m", "64M", "-l", "a=b")
	number := start(t, d, "counter", "sh", "-c", counting)
	await(t, "output to leave out", func() bool { return ps(t, d, "counter")[0].StdoutBytes >= 4 })
	exec := beside(t, d, "exec", "counter", "--", "sh", "-c", counting)
	follow := beside(t, d, "logs", "--exec", number, "--follow", "--offset", "4", "counter")
	waiting := beside(t, d, "wait", "counter", number)
	clients := []*client{exec, follow}
	before := inspect(t, d, "counter")

	progress := func(after string) {
		t.Helper()
		var seen []int
		for _, c := range clients {
			seen = append(seen, len(c.stdout()))
		}
		await(t, "output after "+after, func() bool {
			for i, c := range clients {
				if len(c.stdout()) < seen[i]+200 {
					return false
				}
			}
			return true
		})
	}
	progress("the start")
	d.Kill(t)
	d.Launch(t)
	progress("the first kill of the daemon")
	if err := syscall.Kill(containerdOf(t, d), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.Run(t, "run", "--", "true") // there is one again
	progress("the kill of containerd")
	d.Kill(t)
	d.Launch(t)
	progress("the second kill of the daemon")

	after := inspect(t, d, "counter")
	if after.ID != id || after.PID != before.PID || after.Limits != before.Limits || after.Labels["a"] != "b" || len(after.Posture) < 20 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if jobs := ps(t, d, "counter"); len(jobs) != 2 || jobs[0].State != "running" || jobs[1].State != "running" {
		t.Errorf("commands %+v", jobs)
	}
	d.Run(t, "exec", "counter", "--", "touch", "/tmp/stop")
	for name, c := range map[string]*client{"exec": exec, "logs": follow, "wait": waiting} {
		if code, want := c.end(t), map[string]int{"exec": 9, "logs": 0, "wait": 9}[name]; code != want {
			t.Errorf("%s ended with %d, want %d: %s", name, code, want, c.stderr())
		}
	}
	checkCount(t, "exec", exec.stdout(), 100)
	checkCount(t, "logs --follow --offset 4", "0\n1\n"+follow.stdout(), 100)
	checkCount(t, "logs", d.Run(t, "logs", "--exec", number, "counter").Stdout, 100)
}

// A command whose input has ended is attached to again as one with an input.
func TestEndedInputSurvives(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "deaf")
	c := beside(t, d, "exec", "-i", "deaf", "--", "sh", "-c", "cat; "+counting)
	c.send(t, "0\n1\n2\n")
	c.awaitStdout(t, "2\n")
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "what comes after the input", func() bool { return strings.Count(c.stdout(), "\n") > 10 })
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "exec", "deaf", "--", "touch", "/tmp/stop")
	if code := c.end(t); code != 9 {
		t.Errorf("it ended with %d: %s", code, c.stderr())
	}
	checkCount(t, "exec -i", strings.TrimPrefix(c.stdout(), "0\n1\n2\n"), 10)
}

// What ends while there is no daemon is known to the next one, as is what had
// ended before; a paused sandbox stays paused; the time of one that has a TTL
// goes on.
func TestEndsWithoutDaemon(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "busy")
	box(t, d, "frozen")
	box(t, d, "mortal", "--ttl", "2s")
	d.Try("exec", "busy", "--", "sh", "-c", "echo early; exit 1")
	late := start(t, d, "busy", "sh", "-c", "while [ ! -e /tmp/go ]; do usleep 10000; done; echo late; echo err >&2; exit 4")
	start(t, d, "busy", "sh", "-c", "sleep 0.5; touch /tmp/go")
	start(t, d, "frozen", "sh", "-c", "while :; do echo tick; usleep 10000; done")
	d.Run(t, "pause", "frozen")
	ticks := ps(t, d, "frozen")[0].StdoutBytes
	pid := inspect(t, d, "busy").PID
	d.Kill(t)
	root := fmt.Sprintf("/proc/%d/root/tmp/go", pid)
	await(t, "the sign inside", func() bool { _, err := os.Stat(root); return err == nil })
	time.Sleep(200 * time.Millisecond) // in which the command ends; if it has not, it ends under the next daemon
	d.Launch(t)
	if r := d.Try("wait", "busy", late); r.Code != 4 {
		t.Errorf("wait gave %d\n%s", r.Code, r.Stderr)
	}
	if r := d.Run(t, "logs", "--exec", late, "busy"); r.Stdout != "late\n" || r.Stderr != "err\n" {
		t.Errorf("kept %q and %q", r.Stdout, r.Stderr)
	}
	if r := d.Run(t, "logs", "--exec", "1", "busy"); r.Stdout != "early\n" {
		t.Errorf("kept %q", r.Stdout)
	}
	if r := d.Try("wait", "busy", "1"); r.Code != 1 {
		t.Errorf("wait gave %d for what had ended before", r.Code)
	}
	d.Refused(t, "SBX-114", "exec", "--json", "frozen", "--", "true")
	if now := ps(t, d, "frozen")[0].StdoutBytes; now > ticks+500 {
		t.Errorf("a paused command wrote %d bytes", now-ticks)
	}
	d.Run(t, "resume", "frozen")
	d.Run(t, "exec", "frozen", "--", "true")
	await(t, "the end of the mortal one", func() bool { return len(list(t, d)) == 2 })
}

// A sandbox is idle from the end of its last command on, whatever daemon saw it.
func TestIdleSinceSurvives(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "lazy")
	time.Sleep(time.Second) // of which the next daemon is to know that it is no idleness
	d.Run(t, "exec", "lazy", "--", "true")
	var before, after *time.Time
	idle := func() bool { after = inspect(t, d, "lazy").IdleSince; return after != nil }
	await(t, "its idleness", idle) // the result is told before
	before = after
	d.Kill(t)
	d.Launch(t)
	if !idle() || after.Sub(*before).Abs() > 500*time.Millisecond {
		t.Errorf("idle since %v, then since %v", before, after)
	}
}

// Sandboxes whose daemon never returns end by themselves. One that returns after all
// finds what they wrote.
func TestOrphanGrace(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {orphan_grace: 1s}\n")
	box(t, d, "orphan")
	number := start(t, d, "orphan", "sh", "-c", "echo told; sleep 1000")
	await(t, "output", func() bool { return ps(t, d, "orphan")[0].StdoutBytes == 5 })
	pid := inspect(t, d, "orphan").PID
	if !alive(pid) {
		t.Fatal("PID 1 is not found while it lives")
	}
	d.Kill(t)
	await(t, "the end of the orphan", func() bool { return !alive(pid) })
	d.Launch(t)
	if l := list(t, d); len(l) != 1 || l[0].State != "exited" {
		t.Errorf("there are %+v, want the one that ended", l)
	}
	if out := d.Run(t, "logs", "orphan", "--exec", number).Stdout; out != "told\n" {
		t.Errorf("kept %q", out)
	}
	d.Run(t, "rm", "orphan")
	d.AwaitNoSandbox(t)
}

// What commands did without a daemon is known to one that comes after the sandboxes
// have ended: how they ended, and all that they wrote.
func TestEndsOfOrphans(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {orphan_grace: 3s}\n")
	box(t, d, "job")
	const wait = "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; "
	ended := start(t, d, "job", "sh", "-c", wait+"seq 5000; echo problem >&2; exit 3")
	signaled := start(t, d, "job", "sh", "-c", wait+"kill -SEGV $$")
	running := start(t, d, "job", "sh", "-c", wait+"echo more; sleep 1000")
	await(t, "output", func() bool {
		for _, e := range ps(t, d, "job") {
			if e.StdoutBytes == 0 {
				return false
			}
		}
		return true
	})
	pid := inspect(t, d, "job").PID
	start(t, d, "job", "sh", "-c", "sleep 1; echo >/tmp/go") // when the daemon is gone
	d.Kill(t)
	await(t, "the end of the orphan", func() bool { return !alive(pid) })
	for range 2 { // and to the daemon after that
		d.Launch(t)
		var want strings.Builder
		want.WriteString("begun\n")
		for i := range 5000 {
			fmt.Fprintln(&want, i+1)
		}
		for number, want := range map[string]struct {
			code           int
			reason, stdout string
		}{ended: {3, "exited", want.String()}, signaled: {139, "signaled", "begun\n"}, running: {137, "lost", "begun\nmore\n"}} {
			e := jobOf(t, d, "job", number)
			if e.Result == nil || e.Result.ExitCode != want.code || e.Result.Reason != want.reason || e.StdoutBytes != int64(len(want.stdout)) {
				t.Errorf("command %s: %+v, %d bytes; want %+v", number, e.Result, e.StdoutBytes, want)
			}
			if out := d.Run(t, "logs", "job", "--exec", number); !strings.HasPrefix(out.Stdout, want.stdout) {
				t.Errorf("command %s wrote %d bytes, want %d", number, len(out.Stdout), len(want.stdout))
			}
		}
		if out := d.Run(t, "logs", "job", "--exec", ended); !strings.Contains(out.Stderr, "problem") {
			t.Errorf("standard error is %q", out.Stderr)
		}
		d.Kill(t)
	}
	d.Launch(t)
	d.Run(t, "rm", "job")
	d.AwaitNoSandbox(t)
}

// jobOf is what ps tells of one command.
func jobOf(t *testing.T, d *harness.Daemon, ref, number string) job {
	t.Helper()
	for _, j := range ps(t, d, ref) {
		if j.ID == number {
			return j
		}
	}
	t.Fatalf("%s has no command %s", ref, number)
	return job{}
}

// alive reports whether a process is there and is no zombie.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

var bootField = regexp.MustCompile(`"boot":"[^"]*"`)

// After a reboot, which a changed boot ID stands for, and for a record that is
// torn, everything is swept; what is whole stays.
func TestStaleRecords(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	for _, name := range []string{"rebooted", "torn", "whole"} {
		box(t, d, name)
	}
	rebooted, torn := inspect(t, d, "rebooted"), inspect(t, d, "torn")
	d.Kill(t)
	record := recordOf(t, d, rebooted.ID)
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := bootField.ReplaceAll(data, []byte(`"boot":"00000000-0000-0000-0000-000000000000"`))
	if string(changed) == string(data) {
		t.Fatalf("the record names no boot: %s", data)
	}
	if err := os.WriteFile(record, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(recordOf(t, d, torn.ID), 40); err != nil {
		t.Fatal(err)
	}
	d.Launch(t)
	if l := list(t, d); len(l) != 1 || l[0].Name != "whole" {
		t.Errorf("listed %+v", l)
	}
	await(t, "the end of what is swept", func() bool { return !alive(rebooted.PID) && !alive(torn.PID) })
	d.Run(t, "exec", "whole", "--", "true")
	d.Run(t, "rm", "--force", "whole")
	d.AwaitNoSandbox(t)
}

// A sandbox whose limits were changed while there was no daemon is not gone on
// with, and removed; its neighbour is.
func TestChangedLimitsAreNotAdopted(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "changed", "-m", "64M")
	box(t, d, "whole", "-m", "64M")
	changed := inspect(t, d, "changed")
	d.Kill(t)
	raiseMemory(t, changed.Cgroup)
	d.Launch(t)
	if l := list(t, d); len(l) != 1 || l[0].Name != "whole" {
		t.Errorf("listed %+v", l)
	}
	refusal := regexp.MustCompile("do not go on with a sandbox.*" + changed.ID + ".*SBX-605.*memory")
	if log := d.Log(); !refusal.MatchString(log) {
		t.Errorf("the log does not match %q:\n%s", refusal, log)
	}
	await(t, "the end of what was changed", func() bool { return !alive(changed.PID) })
	d.Run(t, "exec", "whole", "--", "true")
	d.Run(t, "rm", "--force", "whole")
	d.AwaitNoSandbox(t)
}

// The digest of the filters in force is told when a sandbox is created, and found again
// by a later daemon. A sandbox with other filters is not adopted.
func TestFilterDigest(t *testing.T) {
	t.Parallel()
	t.Run("cold", func(t *testing.T) {
		d := harness.StartWith(t, "")
		testFilterDigest(t, d)
		d.AwaitNoSandbox(t)
	})
	t.Run("out of a pool", func(t *testing.T) {
		d := harness.StartWith(t, "pools: [{size: 2}]\n")
		awaitReady(t, d, 2)
		testFilterDigest(t, d)
	})
}

func testFilterDigest(t *testing.T, d *harness.Daemon) {
	for _, name := range []string{"other", "whole"} {
		box(t, d, name)
	}
	other, whole := inspect(t, d, "other"), inspect(t, d, "whole")
	told := one(t, parseEvents(t, d.Run(t, "events", "--json", "--filter", "sandbox=whole").Stdout), "sandbox.created").Data.FilterDigest
	if live := filterDigest(t, whole); live != told || !strings.HasPrefix(told, "sha256:") {
		t.Errorf("%q is in force, %q was told", live, told)
	}
	d.Kill(t)
	record := recordOf(t, d, other.ID)
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), told, "sha256:"+strings.Repeat("0", 64), 1)
	if err := os.WriteFile(record, []byte(changed), 0o600); err != nil || changed == string(text) {
		t.Fatalf("no digest in %s: %v", text, err)
	}
	d.Launch(t)
	if l := list(t, d); len(l) != 1 || l[0].Name != "whole" {
		t.Errorf("listed %+v", l)
	}
	if live := filterDigest(t, inspect(t, d, "whole")); live != told {
		t.Errorf("%q is in force after a restart, %q before", live, told)
	}
	if log := d.Log(); !regexp.MustCompile(other.ID + ".*SBX-605.*seccomp.digest").MatchString(log) {
		t.Errorf("the log does not tell:\n%s", log)
	}
	d.Run(t, "rm", "--force", "whole")
}

func filterDigest(t *testing.T, of listed) string {
	t.Helper()
	for _, c := range of.Posture {
		if c.Name == "seccomp.digest" && c.Declared == c.Live {
			return c.Live
		}
	}
	t.Errorf("no digest in %+v", of.Posture)
	return ""
}

// raiseMemory gives a cgroup 1 GiB of memory, on any version. On v1 the limit with swap, where there is one, is never below the
// other.
func raiseMemory(t *testing.T, cgroup string) {
	t.Helper()
	raised := false
	for _, file := range []string{
		filepath.Join("/sys/fs/cgroup/memory", cgroup, "memory.memsw.limit_in_bytes"),
		filepath.Join("/sys/fs/cgroup/memory", cgroup, "memory.limit_in_bytes"),
		filepath.Join("/sys/fs/cgroup", cgroup, "memory.max"),
	} {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("1073741824")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		raised = true
	}
	if !raised {
		t.Fatalf("cgroup %q has no limit of memory", cgroup)
	}
}

// Much output, which comes beside its call, has no gap either when the daemon is
// killed in the midst of it.
func TestMuchOutputIsNotLost(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "flood")
	c := beside(t, d, "exec", "--output-limit", "64M", "flood", "--", "seq", "0", "5999999") // 47 MB
	await(t, "much output", func() bool { return c.size() > 8<<20 })
	d.Kill(t)
	early := c.size()
	d.Launch(t)
	if code := c.end(t); code != 0 {
		t.Errorf("it ended with %d: %s", code, c.stderr())
	}
	if early == c.size() {
		t.Error("all output came before the daemon was killed")
	}
	checkCount(t, "exec", c.stdout(), 6_000_000)
}

func recordOf(t *testing.T, d *harness.Daemon, id string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.State, "sandboxes", id, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && bootField.Match(data) {
			return f
		}
	}
	t.Fatalf("sandbox %s has no record among %q", id, files)
	return ""
}

// A daemon that is stopped leaves its sandboxes to the next by default.
func TestKeepOnExit(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "# the default of keep_on_exit\n")
	box(t, d, "kept")
	id := start(t, d, "kept", "sh", "-c", counting)
	pid := inspect(t, d, "kept").PID
	exec := beside(t, d, "exec", "kept", "--", "sh", "-c", counting)
	waiting := beside(t, d, "wait", "kept", id)
	follow := beside(t, d, "logs", "--exec", id, "--follow", "kept")
	for _, c := range []*client{exec, follow} {
		c.awaitStdout(t, "9\n")
	}
	typed := beside(t, d, "exec", "-i", "kept", "--", "cat")
	typed.say(t, "before\n")
	typed.awaitStdout(t, "before\n")
	took := timeToStop(t, d)
	if !alive(pid) {
		t.Fatal("the sandbox ended with its daemon")
	}
	d.Config = ""
	d.Launch(t)
	d.Run(t, "exec", "kept", "--", "touch", "/tmp/stop")
	if r := d.Try("wait", "kept", id); r.Code != 9 {
		t.Errorf("wait gave %d\n%s", r.Code, r.Stderr)
	}
	checkCount(t, "logs", d.Run(t, "logs", "--exec", id, "kept").Stdout, 10)
	if code := exec.end(t); code != 9 {
		t.Errorf("exec ended with %d: %s", code, exec.stderr())
	}
	checkCount(t, "exec", exec.stdout(), 10)
	if code := waiting.end(t); code != 9 {
		t.Errorf("wait ended with %d: %s", code, waiting.stderr())
	}
	if code := follow.end(t); code != 0 {
		t.Errorf("logs ended with %d: %s", code, follow.stderr())
	}
	checkCount(t, "logs --follow", follow.stdout(), 10)
	typed.say(t, "after\n")
	_ = typed.stdin.Close()
	if code := typed.end(t); code != 0 || typed.stdout() != "before\nafter\n" {
		t.Errorf("exec -i ended with %d: %q %s", code, typed.stdout(), typed.stderr())
	}
	d.Run(t, "run", "--", "true")                              // it has an engine, as the first had
	if alone := timeToStop(t, d); took > alone+4*time.Second { // calls that are waited for get 5
		t.Errorf("stopping took %s, and %s without callers", took, alone)
	}
	d.Launch(t)
}

// What a daemon left is removed through the next one, all at once.
func TestRemoveAll(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "# the default of keep_on_exit\n")
	for _, name := range []string{"a", "b", "c"} {
		d.Run(t, "create", "--name", name)
		start(t, d, name, "sleep", "1000")
	}
	d.Stop(t)
	if !strings.Contains(d.Log(), "left sandboxes to the next daemon") {
		t.Errorf("the log does not say that sandboxes are left:\n%s", d.Log())
	}
	d.Launch(t)
	if l := list(t, d); len(l) != 3 {
		t.Errorf("the next daemon has %+v", l)
	}
	d.Run(t, "rm", "--all", "--force")
	if l := list(t, d); len(l) != 0 {
		t.Errorf("after rm --all: %+v", l)
	}
}

func timeToStop(t *testing.T, d *harness.Daemon) time.Duration {
	t.Helper()
	begin := time.Now()
	d.Stop(t)
	return time.Since(begin)
}
