package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

//caisson:kernel
//caisson:smoke
func TestFirstCommand(t *testing.T) {
	r := daemon.Run(t, "run", "--", "sh", "-c", "echo hi; echo oops >&2")
	if r.Stdout != "hi\n" || r.Stderr != "oops\n" {
		t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
	}
	daemon.AwaitNoSandbox(t)
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want int
	}{
		{"success", []string{"true"}, 0},
		{"own code", []string{"sh", "-c", "exit 7"}, 7},
		{"highest code", []string{"sh", "-c", "exit 255"}, 255},
		{"signal", []string{"sh", "-c", "kill -TERM $$"}, 143},
		{"kill", []string{"sh", "-c", "kill -KILL $$"}, 137},
		{"not found", []string{"no-such-command"}, 127},
		{"no such path", []string{"/no/such/path"}, 127},
		{"not executable", []string{"/etc/passwd"}, 126},
		{"a directory", []string{"/etc"}, 126},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := daemon.Try(append([]string{"run", "--"}, tt.args...)...); r.Code != tt.want {
				t.Errorf("exit code %d, want %d\n%s", r.Code, tt.want, r.Stderr)
			}
		})
	}
}

// A sandbox is of the machine that the programs were built for, under two filters: the
// declared one and PID 1's.
//
//caisson:kernel
//caisson:smoke
func TestMachine(t *testing.T) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[goruntime.GOARCH]
	daemon.Run(t, "create", "--name", "machine")
	out := daemon.Run(t, "exec", "machine", "--", "sh", "-c", "uname -m; grep Seccomp /proc/self/status").Stdout
	if want := machine + "\nSeccomp:\t2\nSeccomp_filters:\t2\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	daemon.Run(t, "rm", "--force", "machine")
	daemon.AwaitNoSandbox(t)
}

//caisson:kernel
//caisson:smoke
func TestResultTellsWhatHappened(t *testing.T) {
	r := daemon.RunJSON(t, "--", "sh", "-c", "printf out; printf err >&2; exit 3")
	if r.Source != "command" || r.Reason != "exited" || r.ExitCode != 3 || r.Stdout != "out" || r.Stderr != "err" || r.StdoutBytes != 3 || r.Sandbox.Network != "none" {
		t.Errorf("result %+v", r)
	}
	if r.Usage.CPU.Milliseconds() <= 0 || r.Duration.Milliseconds() <= 0 || r.Sandbox.ID == "" {
		t.Errorf("usage is missing: %+v", r)
	}
	if r := daemon.RunJSON(t, "--", "sh", "-c", "kill -9 $$"); r.Reason != "signaled" || r.Signal != 9 || r.OOMKilled {
		t.Errorf("a killed command: %+v", r)
	}
}

//caisson:kernel
//caisson:smoke
func TestNothingIsInherited(t *testing.T) {
	out := daemon.Run(t, "run", "-e", "GIVEN=yes", "--", "env").Stdout
	if !strings.Contains(out, "GIVEN=yes\n") || strings.Contains(out, "CANARY") {
		t.Errorf("environment:\n%s", out)
	}
	out = daemon.Run(t, "run", "--workdir", "/tmp", "--", "sh", "-c", "pwd; id -u; id -g; umask").Stdout
	if out != "/tmp\n1000\n1000\n0022\n" {
		t.Errorf("got %q", out)
	}
	if out := daemon.Run(t, "run", "--user", "2000:3000", "--", "id").Stdout; !strings.HasPrefix(out, "uid=2000(caisson2000) gid=3000(caisson3000)") {
		t.Errorf("got %q", out)
	}
}

func TestStandardInput(t *testing.T) {
	data := random(5 << 20)
	want := sha256.Sum256(data)
	r := daemon.TryWith(string(data), "run", "-i", "--", "sha256sum")
	if !strings.HasPrefix(r.Stdout, hex.EncodeToString(want[:])) {
		t.Errorf("sha256sum of the input: %q, %s", r.Stdout, r.Stderr)
	}
	if r := daemon.TryWith("input", "run", "--", "cat"); r.Stdout != "" || r.Code != 0 {
		t.Errorf("without -i: %q, code %d", r.Stdout, r.Code)
	}
	// A command that does not read its input is not held back by it.
	if r := daemon.TryWith(string(data), "run", "-i", "--", "true"); r.Code != 0 {
		t.Errorf("an unread input: code %d, %s", r.Code, r.Stderr)
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestOutputIsExactBelowTheCap(t *testing.T) {
	data := random(9 << 20)
	r := daemon.TryWith(string(data), "run", "-i", "--", "cat")
	if r.Stdout != string(data) {
		t.Errorf("%d bytes came back, want the same %d", len(r.Stdout), len(data))
	}
}

func TestOutputIsCapped(t *testing.T) {
	r := daemon.RunJSON(t, "--output-limit", "1000", "--", "sh", "-c", "printf start; head -c 5000 /dev/zero | tr '\\0' x; printf end")
	if !r.Truncated || r.StdoutBytes != 5008 {
		t.Errorf("truncated %v, %d bytes", r.Truncated, r.StdoutBytes)
	}
	if !strings.HasPrefix(r.Stdout, "start") || !strings.HasSuffix(r.Stdout, "end") || len(r.Stdout) != 1000 || r.StdoutSkipped != 4008 {
		t.Errorf("head and tail: %.20q … %q", r.Stdout, r.Stdout[max(0, len(r.Stdout)-20):])
	}
}

//caisson:smoke
func TestOutputStreams(t *testing.T) {
	cmd := daemon.Command(t.Context(), "run", "--", "sh", "-c", "echo first; sleep 30")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || string(line) != "first\n" {
		t.Fatalf("read %q, %v while the command runs", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	daemon.AwaitNoSandbox(t) // a client that dies takes its run with it
}

//caisson:kernel
//caisson:smoke
func TestTimeout(t *testing.T) {
	start := time.Now()
	r := daemon.Try("run", "--timeout", "1s", "--", "sh", "-c", "echo before; sleep 60 & sleep 60")
	if r.Code != 124 || r.Stdout != "before\n" {
		t.Errorf("code %d, output %q", r.Code, r.Stdout)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	daemon.AwaitNoSandbox(t)
}

// A command that ignores TERM, hides in sessions of its own and stops itself
// ends all the same, after the grace.
func TestTimeoutEndsTheStubborn(t *testing.T) {
	r := daemon.RunJSON(t, "--timeout", "500ms", "--", "sh", "-c", `
		trap '' TERM
		setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
		(kill -STOP $(sh -c 'echo $PPID')) &
		echo started
		while :; do sleep 1; done`)
	if !r.TimedOut || r.ExitCode != 124 || r.Reason != "timeout" || r.Stdout != "started\n" {
		t.Errorf("result %+v", r)
	}
	daemon.AwaitNoSandbox(t)
}

func TestChildDoesNotHoldTheResult(t *testing.T) {
	start := time.Now()
	r := daemon.Run(t, "run", "--", "sh", "-c", "sleep 60 & echo done")
	if r.Stdout != "done\n" || time.Since(start) > 20*time.Second {
		t.Errorf("output %q after %s", r.Stdout, time.Since(start))
	}
}

//caisson:kernel
//caisson:smoke
func TestMemoryLimit(t *testing.T) {
	r := daemon.RunJSON(t, "-m", "32M", "--", "sh", "-c", "head -c 100m /dev/zero | tail -c 90m | wc -c")
	// The kernel lets a dying process take a few pages past the limit.
	if !r.OOMKilled || r.Usage.PeakMemory < 24<<20 || r.Usage.PeakMemory > 33<<20 {
		t.Errorf("result %+v", r)
	}
	if r := daemon.RunJSON(t, "-m", "32M", "--", "tail", "/dev/zero"); !r.OOMKilled || r.ExitCode != 137 || r.Reason != "oom" {
		t.Errorf("result %+v", r)
	}
	// A faked code is not taken for it.
	if r := daemon.RunJSON(t, "--", "sh", "-c", "exit 137"); r.OOMKilled || r.Reason != "exited" {
		t.Errorf("result %+v", r)
	}
}

//caisson:kernel
func TestForkBomb(t *testing.T) {
	r := daemon.RunJSON(t, "--pids", "32", "--timeout", "3s", "--", "sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1; echo survived")
	if !r.PIDsLimitHit {
		t.Errorf("result %+v", r)
	}
	daemon.AwaitNoSandbox(t)
}

//caisson:smoke
func TestDetached(t *testing.T) {
	id := strings.TrimSpace(daemon.Run(t, "run", "-d", "--name", "job", "--label", "k=v", "--", "sh", "-c", "echo out; echo err >&2; exit 4").Stdout)
	logs := daemon.Run(t, "logs", "--follow", "job")
	if logs.Stdout != "out\n" || logs.Stderr != "err\n" {
		t.Errorf("logs: %q, %q", logs.Stdout, logs.Stderr)
	}
	var list []struct {
		ID, Name, State string
		Result          *struct {
			ExitCode int `json:"exit_code"`
		}
		Labels map[string]string
	}
	await(t, "the job's end", func() bool {
		daemon.Run(t, "ls", "-o", "json").JSON(t, &list)
		return len(list) == 1 && list[0].State == "exited"
	})
	if l := list[0]; l.ID != id || l.Name != "job" || l.Result == nil || l.Result.ExitCode != 4 || l.Labels["k"] != "v" {
		t.Errorf("listed %+v", l)
	}
	daemon.Refused(t, "SBX-106", "run", "--json", "--name", "job", "--", "true")
	daemon.Run(t, "rm", id[:8])
	daemon.AwaitNoSandbox(t)
}

func TestRemoveRunning(t *testing.T) {
	daemon.Run(t, "run", "-d", "--name", "long", "--", "sleep", "1000")
	daemon.Refused(t, "SBX-108", "rm", "-o", "json", "long")
	daemon.Run(t, "rm", "--force", "long")
	daemon.AwaitNoSandbox(t)
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(60 * time.Millisecond) { // the list is the only word of it
		if done() {
			return
		}
	}
	t.Fatalf("%s did not come", what)
}

//caisson:kernel
func TestInspectShowsThePosture(t *testing.T) {
	daemon.Run(t, "run", "-d", "--name", "seen", "--", "sleep", "1000")
	defer daemon.Run(t, "rm", "--force", "seen")
	var d struct {
		HostIDBase uint32 `json:"host_id_base"`
		PID        int
		Posture    []struct{ Name, Declared, Live string }
	}
	daemon.Run(t, "inspect", "--posture", "seen").JSONIn(t, "sandbox", &d)
	if len(d.Posture) < 20 || d.HostIDBase < 1<<16 {
		t.Errorf("inspected %+v", d)
	}
	uidMap, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", d.PID))
	if err != nil || !bytes.Contains(uidMap, fmt.Append(nil, d.HostIDBase)) {
		t.Errorf("uid_map %q, %v", uidMap, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	const n = 12
	codes := make(chan int, n)
	for i := range n {
		go func() { codes <- daemon.Try("run", "--", "sh", "-c", fmt.Sprintf("exit %d", i)).Code }()
	}
	sum := 0
	for range n {
		sum += <-codes
	}
	if sum != n*(n-1)/2 {
		t.Errorf("the exit codes add up to %d", sum)
	}
	daemon.AwaitNoSandbox(t)
}

func TestDescriptorsDoNotLeak(t *testing.T) {
	daemon.Run(t, "run", "--", "true")
	daemon.AwaitNoSandbox(t)
	before := daemon.OpenFiles(t)
	for range 5 {
		daemon.Run(t, "run", "--", "true")
		daemon.Try("run", "--", "no-such-command")
	}
	daemon.AwaitNoSandbox(t)
	// Each id block that is used for the first time keeps one namespace open.
	if after := daemon.OpenFiles(t); after > before+10 {
		t.Errorf("%d descriptors before, %d after ten runs", before, after)
	}
}

func workspace(t *testing.T, uid, gid int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "caisson-ws-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

//caisson:kernel
//caisson:smoke
func TestWorkspaceBelongsToItsOwner(t *testing.T) {
	for _, owner := range []int{0, 4321} {
		dir := workspace(t, owner, owner+1)
		daemon.Run(t, "run", "--workspace", dir, "--", "sh", "-c", "pwd > where; mkdir -p a/b; touch a/b/c; ln -s /etc/shadow link")
		for _, name := range []string{"where", "a", "a/b/c", "link"} {
			st, err := os.Lstat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if s := st.Sys().(*syscall.Stat_t); s.Uid != uint32(owner) || s.Gid != uint32(owner+1) {
				t.Errorf("%s belongs to %d:%d, want %d:%d", name, s.Uid, s.Gid, owner, owner+1)
			}
		}
		if where, err := os.ReadFile(filepath.Join(dir, "where")); err != nil || string(where) != "/workspace\n" {
			t.Errorf("the command ran in %q, %v", where, err)
		}
	}
}

// TestWorkspacePath: a workspace may have the path inside that it has on the host, also
// below a tmpfs of the sandbox, and keeps it over a daemon that is killed.
//
//caisson:kernel
func TestWorkspacePath(t *testing.T) {
	d := harness.Start(t)
	dir := workspace(t, 4321, 4321)
	for i, point := range []string{dir, "/home/me/project", "/root/project", "/srv/a", "/data", "/usr/src/app"} {
		name := fmt.Sprint("box", i)
		d.Run(t, "create", "--name", name, "--workspace", dir+":"+point)
		if out := d.Run(t, "exec", name, "--", "sh", "-c", "pwd; echo made > out; stat -c %u out").Stdout; out != point+"\n1000\n" {
			t.Errorf("%s: %q", point, out)
		}
	}
	d.Kill(t)
	d.Launch(t)
	if out := d.Run(t, "exec", "box0", "--", "sh", "-c", "pwd; cat out").Stdout; out != dir+"\nmade\n" {
		t.Errorf("after a restart: %q", out)
	}
	if st, err := os.Stat(filepath.Join(dir, "out")); err != nil || st.Sys().(*syscall.Stat_t).Uid != 4321 {
		t.Errorf("on the host: %v, %v", st, err)
	}
	f := d.Refused(t, "SBX-104", "create", "--workspace", dir+":/dev/x", "--json")
	if !strings.Contains(f.Error.Message, `"/dev/x"`) {
		t.Errorf("%+v", f)
	}
}

func TestWorkspaceReadOnly(t *testing.T) {
	dir := workspace(t, 1, 1)
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("seen"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := daemon.Try("run", "--workspace", dir+":ro", "--", "sh", "-c", "cat in; touch out")
	if r.Stdout != "seen" || r.Code == 0 || !strings.Contains(r.Stderr, "Read-only") {
		t.Errorf("stdout %q, code %d, stderr %q", r.Stdout, r.Code, r.Stderr)
	}
}
