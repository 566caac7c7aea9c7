package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

func execJSON(t *testing.T, d *harness.Daemon, args ...string) harness.RunResult {
	t.Helper()
	var r harness.RunResult
	d.Try(append([]string{"exec", "--json"}, args...)...).JSONIn(t, "result", &r)
	return r
}

func TestExecOptions(t *testing.T) {
	box(t, daemon, "x", "-e", "BASE=1")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"env", []string{"-e", "OWN=2", "x", "--", "sh", "-c", "echo $BASE $OWN $HOST_CANARY"}, "1 2\n"},
		{"cwd", []string{"-w", "/tmp", "x", "--", "pwd"}, "/tmp\n"},
		{"user", []string{"-u", "1000:1000", "x", "--", "sh", "-c", "id -u; id -g"}, "1000\n1000\n"},
		{"rlimit", []string{"--ulimit", "nofile=33:44", "x", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"}, "33\n44\n"},
	} {
		if out := daemon.Run(t, append([]string{"exec"}, tt.args...)...).Stdout; out != tt.want {
			t.Errorf("%s: printed %q, want %q", tt.name, out, tt.want)
		}
	}
	if r := daemon.TryWith("echo script; exit 6\n", "exec", "--shell", "x"); r.Stdout != "script\n" || r.Code != 6 {
		t.Errorf("a script printed %q, code %d\n%s", r.Stdout, r.Code, r.Stderr)
	}
	for _, tt := range []struct {
		code int
		args []string
	}{{127, []string{"no-such-command"}}, {126, []string{"/etc/passwd"}}, {143, []string{"sh", "-c", "kill -TERM $$"}}} {
		if r := daemon.Try(append([]string{"exec", "x", "--"}, tt.args...)...); r.Code != tt.code {
			t.Errorf("%q: code %d, want %d\n%s", tt.args, r.Code, tt.code, r.Stderr)
		}
	}
}

// TestExecRlimits: every limit that Linux has may be lowered, and none raised.
//
//caisson:kernel
func TestExecRlimits(t *testing.T) {
	box(t, daemon, "limited")
	want := map[string]string{ // 2 of what the sandbox bounds itself, else more than a command needs
		"cpu=100:101": "Max cpu time 100 101", "fsize=1000:2000": "Max file size 1000 2000", "data=50000000": "Max data size 50000000 50000000",
		"as=100000000": "Max address space 100000000 100000000", "rss=1000": "Max resident set 1000 1000", "rttime=7:8": "Max realtime timeout 7 8",
		"locks=5": "Max file locks 5 5", "stack=100000": "Max stack size 100000 100000", "core=0": "Max core file size 0 0", "nofile=64": "Max open files 64 64",
		"nproc=20": "Max processes 20 20", "memlock=0": "Max locked memory 0 0", "sigpending=9": "Max pending signals 9 9",
		"msgqueue=0": "Max msgqueue size 0 0", "nice=0": "Max nice priority 0 0", "rtprio=0": "Max realtime priority 0 0",
	}
	args := []string{"exec"}
	for limit := range want {
		args = append(args, "--ulimit", limit)
	}
	out := daemon.Run(t, append(args, "limited", "--", "cat", "/proc/self/limits")...).Stdout
	have := map[string]bool{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		have[strings.Join(words, " ")] = true
		have[strings.Join(words[:len(words)-1], " ")] = true // without the unit
	}
	for limit, line := range want {
		if !have[line] {
			t.Errorf("%s gave no %q in:\n%s", limit, line, out)
		}
	}
	if r := execJSON(t, daemon, "--ulimit", "fsize=1000", "limited", "--", "dd", "if=/dev/zero", "of=/tmp/f", "bs=2000", "count=2"); r.ExitCode == 0 {
		t.Errorf("a file above its limit was written: %+v", r)
	}
	f := daemon.Refused(t, "SBX-101", "run", "--json", "--ulimit", "nofile=99999", "--ulimit", "memlock=unlimited", "--", "true")
	for _, part := range []string{
		"RLIMIT_NOFILE: 99999:99999 was asked for, and the sandbox's hard limit is 4096",
		"RLIMIT_MEMLOCK: unlimited:unlimited was asked for, and the sandbox's hard limit is 65536",
	} {
		if !strings.Contains(f.Error.Message, part) {
			t.Errorf("message %q lacks %q", f.Error.Message, part)
		}
	}
	if !strings.Contains(f.Error.Remedy, "may only lower") {
		t.Errorf("remedy %q", f.Error.Remedy)
	}
	daemon.Run(t, "rm", "--force", "limited")
	daemon.AwaitNoSandbox(t)
}

// What a command leaves running does not hold its result back, not even until
// the daemon gives up waiting for its output, which is after 10 seconds.
func TestExecChildDoesNotHoldTheResult(t *testing.T) {
	box(t, daemon, "parent")
	begin := time.Now()
	r := daemon.Run(t, "exec", "parent", "--", "sh", "-c", "(sleep 1000; echo late) & echo done")
	if r.Stdout != "done\n" || time.Since(begin) > 5*time.Second {
		t.Errorf("printed %q after %s", r.Stdout, time.Since(begin))
	}
	await(t, "the child", func() bool { return daemon.Try("exec", "parent", "--", "pidof", "sleep").Code == 0 }) // it may begin later than the result comes
}

// A command's time ends it and its children; what it wrote is there.
func TestExecTimeout(t *testing.T) {
	box(t, daemon, "slow")
	r := execJSON(t, daemon, "--timeout", "500ms", "slow", "--", "sh", "-c", "echo before; sleep 1000 & sleep 1000")
	if !r.TimedOut || r.ExitCode != 124 || r.Reason != "timeout" || r.Stdout != "before\n" {
		t.Errorf("result %+v", r)
	}
	if r := daemon.Try("exec", "slow", "--", "pidof", "sleep"); r.Code != 1 {
		t.Errorf("left running: %q", r.Stdout)
	}
}

// A command of its own limits ends by them, and the sandbox does not notice.
//
//caisson:kernel
func TestExecOwnLimits(t *testing.T) {
	box(t, daemon, "big", "-m", "256M", "--pids", "128")
	id := start(t, daemon, "big", "sleep", "1000")
	r := execJSON(t, daemon, "-m", "16M", "big", "--", "tail", "/dev/zero")
	if !r.OOMKilled || r.Reason != "oom" || r.ExitCode != 137 {
		t.Errorf("result %+v", r)
	}
	r = execJSON(t, daemon, "--pids", "16", "--timeout", "1s", "big", "--", "sh", "-c", "(bomb() { bomb | bomb & }; bomb); exec sleep 100")
	if !r.PIDsLimitHit || !r.TimedOut {
		t.Errorf("result %+v", r)
	}
	if r := execJSON(t, daemon, "--pids", "8", "-m", "4M", "big", "--", "echo", "small"); r.ExitCode != 0 || r.Stdout != "small\n" {
		t.Errorf("with little: %+v", r)
	}
	daemon.Refused(t, "SBX-102", "exec", "--json", "--pids", "7", "big", "--", "true")
	daemon.Run(t, "exec", "--pids", "8", "big", "--", "sh", "-c", "sleep 2000 >/dev/null 2>&1 &")
	daemon.Run(t, "exec", "big", "--", "sh", "-c", "sleep 3000 >/dev/null 2>&1 &") // the control: one without limits leaves what it likes
	// Of the bomb, which starts processes as others end, nothing is left.
	out := daemon.Run(t, "exec", "big", "--", "ps", "-o", "args").Stdout
	if strings.Contains(out, "bomb") || strings.Contains(out, "sleep 2000") || !strings.Contains(out, "sleep 1000") || !strings.Contains(out, "sleep 3000") {
		t.Errorf("processes:\n%s", out)
	}
	if jobs := ps(t, daemon, "big"); jobs[0].ID != id || jobs[0].State != "running" {
		t.Errorf("the neighbour: %+v", jobs[0])
	}
	if groups, err := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/%s/%s/*/", daemon.Instance(), inspect(t, daemon, "big").ID)); err != nil || len(groups) != 0 {
		t.Errorf("groups of ended commands: %q, %v", groups, err)
	}
}

func TestBackgroundExec(t *testing.T) {
	box(t, daemon, "bg")
	id := start(t, daemon, "bg", "sh", "-c", "echo one; echo err >&2; read line; echo two")
	other := start(t, daemon, "bg", "sh", "-c", "printf 01234; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo 56789; exit 5")
	if id == other {
		t.Fatalf("both have ID %s", id)
	}
	if r := daemon.Try("wait", "bg", id); r.Code != 0 { // it has no input
		t.Errorf("code %d\n%s", r.Code, r.Stderr)
	}
	await(t, "the first bytes", func() bool { return ps(t, daemon, "bg")[1].StdoutBytes == 5 })
	follow := beside(t, daemon, "logs", "--exec", other, "--follow", "--offset", "4", "bg")
	attached := beside(t, daemon, "attach", "bg", other)
	daemon.Run(t, "exec", "bg", "--", "touch", "/tmp/go")
	if code := attached.end(t); code != 5 || attached.stdout() != "0123456789\n" {
		t.Errorf("attach gave %d and %q\n%s", code, attached.stdout(), attached.stderr())
	}
	if follow.end(t); follow.stdout() != "456789\n" {
		t.Errorf("followed %q\n%s", follow.stdout(), follow.stderr())
	}
	if r := daemon.Run(t, "logs", "--exec", id, "bg"); r.Stdout != "one\ntwo\n" || r.Stderr != "err\n" {
		t.Errorf("kept %q and %q", r.Stdout, r.Stderr)
	}
	if r := daemon.Try("wait", "bg", other); r.Code != 5 {
		t.Errorf("wait gave %d", r.Code)
	}
	f := daemon.Refused(t, "SBX-115", "logs", "-o", "json", "--exec", "99", "bg")
	if !strings.Contains(f.Error.Message, `"99"`) {
		t.Errorf("message %q", f.Error.Message)
	}
}

// A command in the background may be sent its input later.
func TestBackgroundInput(t *testing.T) {
	box(t, daemon, "later")
	id := strings.TrimSpace(daemon.Run(t, "exec", "-d", "-i", "later", "--", "sh", "-c", "cat; exit 4").Stdout)
	if r := daemon.TryWith("sent later", "attach", "-i", "later", id); r.Code != 4 || r.Stdout != "sent later" {
		t.Errorf("code %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
	run := strings.TrimSpace(daemon.Run(t, "run", "-d", "-i", "--", "sh", "-c", "cat; exit 5").Stdout)
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", run) })
	if r := daemon.TryWith("sent later", "attach", "-i", run, "1"); r.Code != 5 || r.Stdout != "sent later" {
		t.Errorf("of a run: code %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
}

//caisson:kernel
//caisson:smoke
func TestKillAll(t *testing.T) {
	box(t, daemon, "k")
	id := start(t, daemon, "k", "sh", "-c", "setsid sleep 1111 & sleep 1111")
	await(t, "both", func() bool { return len(strings.Fields(daemon.Try("exec", "k", "--", "pidof", "sleep").Stdout)) == 2 })
	daemon.Run(t, "kill", "-s", "KILL", "--all", "k", id)
	if r := daemon.Try("wait", "k", id); r.Code != 137 {
		t.Errorf("wait gave %d", r.Code)
	}
	await(t, "their end", func() bool { return daemon.Try("exec", "k", "--", "pidof", "sleep").Code == 1 })
	daemon.Refused(t, "SBX-108", "kill", "-o", "json", "k", id)
}

// The end of the input reaches the command while it goes on to answer.
func TestHalfClose(t *testing.T) {
	box(t, daemon, "pipe")
	c := beside(t, daemon, "exec", "-i", "pipe", "--", "sh", "-c", "while read l; do echo got $l; done; echo end; sleep 0.3; echo after")
	c.send(t, "a\n")
	c.awaitStdout(t, "got a\n")
	c.send(t, "b\n")
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 0 || c.stdout() != "got a\ngot b\nend\nafter\n" {
		t.Errorf("code %d, printed %q\n%s", code, c.stdout(), c.stderr())
	}
}

func TestStreamJSONL(t *testing.T) {
	id := box(t, daemon, "jl")
	r := daemon.Try("exec", "--stream", "jsonl", "jl", "--", "sh", "-c", `echo out; echo err >&2; sleep 0.1; printf '\377'; exit 3`)
	if r.Code != 3 {
		t.Errorf("code %d", r.Code)
	}
	r2 := daemon.Run(t, "run", "--stream", "jsonl", "--", "true")
	if !strings.Contains(r2.Stdout, `"args":["true"]`) || strings.Contains(r2.Stdout, `"pid":0`) || strings.Count(r2.Stdout, `"exec_id":"1"`) != 1 {
		t.Errorf("of a run: %s", r2.Stdout)
	}
	var types []string
	data := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		var events map[string]struct {
			SandboxID string `json:"sandbox_id"`
			Text      string
			Data      []byte
			Offset    int64
			ExitCode  int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(line), &events); err != nil || len(events) != 1 {
			t.Fatalf("%q: %v", line, err)
		}
		for kind, e := range events {
			types = append(types, kind)
			if int(e.Offset) != len(data[kind]) {
				t.Errorf("%q has offset %d after %d bytes", line, e.Offset, len(data[kind]))
			}
			data[kind] += e.Text + string(e.Data)
			if kind == "started" && e.SandboxID != id || kind == "exit" && e.ExitCode != 3 {
				t.Errorf("line %s", line)
			}
		}
	}
	n := len(types)
	if n < 4 || types[0] != "started" || types[n-1] != "exit" || data["stdout"] != "out\n\377" || data["stderr"] != "err\n" {
		t.Errorf("lines %q, %q", types, data)
	}
}

// A foreground command whose client dies ends after the grace; one in the
// background does not.
func TestClientThatDies(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {attach_grace: 300ms}\n")
	box(t, d, "left")
	c := beside(t, d, "exec", "left", "--", "sleep", "1000")
	await(t, "the command", func() bool { return len(ps(t, d, "left")) == 1 })
	other := start(t, d, "left", "sleep", "1000")
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return ps(t, d, "left")[0].State == "exited" })
	if j := ps(t, d, "left"); j[0].Result.Reason != "canceled" || j[1].ID != other || j[1].State != "running" {
		t.Errorf("commands %+v", j)
	}
}

// So does one whose client and daemon die: the next daemon waits for the client as long.
func TestClientThatDiesWithTheDaemon(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {attach_grace: 1s}\n")
	box(t, d, "left")
	dies := beside(t, d, "exec", "left", "--", "sleep", "1000")
	await(t, "a command", func() bool { return len(ps(t, d, "left")) == 1 })
	other := start(t, d, "left", "sleep", "1000")
	d.Kill(t)
	if err := dies.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.Launch(t)
	await(t, "its end", func() bool { return ps(t, d, "left")[0].State == "exited" })
	if j := ps(t, d, "left"); j[0].Result.Reason != "canceled" || j[1].ID != other || j[1].State != "running" {
		t.Errorf("commands %+v", j)
	}
}

// The output of a command is capped, on disk too, and continues by offsets.
func TestExecOutputCap(t *testing.T) {
	id := box(t, daemon, "loud")
	r := execJSON(t, daemon, "--output-limit", "1000", "loud", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end")
	if !r.Truncated || r.StdoutBytes != 3000004 || !strings.HasSuffix(r.Stdout, "end\n") {
		t.Errorf("truncated %v, %d bytes, %d shown", r.Truncated, r.StdoutBytes, len(r.Stdout))
	}
	var size int64
	files, err := filepath.Glob(filepath.Join(daemon.Root, "output", id, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Sys().(*syscall.Stat_t).Blocks * 512 // what was dropped is a hole
	}
	if size > 1<<20 { // it is kept in whole blocks
		t.Errorf("%d bytes are on disk", size)
	}
}

// What exec takes for its command, run takes too; a time to live ends a run that
// nobody waits for.
func TestRunTakesWhatExecTakes(t *testing.T) {
	r := daemon.TryWith("cd /tmp; pwd; ulimit -n; ulimit -Hn; exit 7", "run", "--shell", "--ulimit", "nofile=64:128")
	if r.Code != 7 || r.Stdout != "/tmp\n64\n128\n" {
		t.Errorf("code %d, %q %s", r.Code, r.Stdout, r.Stderr)
	}
	daemon.Run(t, "run", "-d", "--ttl", "1s", "--name", "brief", "--", "sleep", "1000")
	await(t, "its end", func() bool { return len(list(t, daemon)) == 0 })
	daemon.AwaitNoSandbox(t)
}
