package integration

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

//caisson:kernel
//caisson:smoke
func TestSessionKeepsItsState(t *testing.T) {
	id := box(t, daemon, "agent", "--session", "s-1", "--task", "t-1", "-l", "team=blue")
	daemon.Run(t, "exec", "agent", "--", "sh", "-c", "echo 42 > /tmp/answer")
	if out := daemon.Run(t, "exec", id[:10], "--", "cat", "/tmp/answer").Stdout; out != "42\n" {
		t.Errorf("read %q", out)
	}
	l := list(t, daemon, "-l", "team=blue")
	if len(l) != 1 || l[0].ID != id || l[0].Session != "s-1" || l[0].Task != "t-1" || l[0].State != "running" {
		t.Errorf("listed %+v", l)
	}
	if l := list(t, daemon, "-l", "team=red"); len(l) != 0 {
		t.Errorf("listed %+v by a label that none has", l)
	}
	daemon.Refused(t, "SBX-108", "rm", "-o", "json", "agent")
	daemon.Run(t, "rm", "--force", "agent")
	daemon.AwaitNoSandbox(t)
}

// TestWaitForOneThatIsRemoved: a job whose sandbox goes with it has an exit code.
func TestWaitForOneThatIsRemoved(t *testing.T) {
	daemon.Run(t, "run", "-d", "--name", "short", "--ttl", "1s", "--", "sleep", "20")
	if r := daemon.Try("wait", "--json", "short"); r.Code != 137 || !strings.Contains(r.Stdout, `"reason": "expired"`) {
		t.Errorf("of one whose time is over: %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	daemon.AwaitNoSandbox(t)
	f := daemon.Refused(t, "SBX-107", "inspect", "-o", "json", "short")
	if !strings.Contains(f.Error.Message, `sandbox "short" was removed at 2`) {
		t.Errorf("afterwards: %q", f.Error.Message)
	}
	daemon.Run(t, "run", "-d", "--name", "long", "--", "sleep", "20")
	c := beside(t, daemon, "wait", "long")
	time.Sleep(100 * time.Millisecond) // until it waits
	daemon.Run(t, "rm", "--force", "long")
	if code := c.end(t); code != 137 {
		t.Errorf("of one that is removed: %d\n%s", code, c.stderr())
	}
	if r := daemon.Try("run", "--ttl", "1s", "--", "sleep", "20"); r.Code != 137 || !strings.Contains(r.Stderr, "whose time was over") {
		t.Errorf("in the foreground: %d, %q", r.Code, r.Stderr)
	}
	daemon.AwaitNoSandbox(t)
}

func TestEnsure(t *testing.T) {
	id := box(t, daemon, "one", "--ensure", "-m", "64M", "-l", "a=b")
	if again := box(t, daemon, "one", "--ensure", "-m", "64M", "-l", "a=b"); again != id {
		t.Errorf("the same settings gave %s, not %s", again, id)
	}
	daemon.Run(t, "update", "-m", "65M", "-l", "a=c", "one") // a script that runs again does not know
	if again := box(t, daemon, "one", "--ensure", "-m", "64M", "-l", "a=b"); again != id {
		t.Errorf("after an update the settings of the creation gave %s, not %s", again, id)
	}
	if l := list(t, daemon); l[0].Labels["a"] != "c" {
		t.Errorf("what update changed is undone: %+v", l[0])
	}
	f := daemon.Refused(t, "SBX-106", "create", "--json", "--ensure", "--name", "one", "-m", "65M", "-l", "a=c")
	if !strings.HasSuffix(f.Error.Message, "sandbox one was made with other settings: limits.memory_bytes, labels") {
		t.Errorf("message %q", f.Error.Message)
	}
	daemon.Refused(t, "SBX-106", "create", "--json", "--name", "one")
	daemon.Run(t, "rm", "--force", "one")
	daemon.AwaitNoSandbox(t)
}

func TestIdempotencyKey(t *testing.T) {
	first := strings.TrimSpace(daemon.Run(t, "create", "--key", "order-1").Stdout)
	again := strings.TrimSpace(daemon.Run(t, "create", "--key", "order-1").Stdout)
	if first != again || len(list(t, daemon)) != 1 {
		t.Errorf("the same key made %s and %s", first, again)
	}
	f := daemon.Refused(t, "SBX-106", "create", "--json", "--key", "order-1", "--pids", "77")
	if !strings.Contains(f.Error.Message, "limits") {
		t.Errorf("it does not say what differs: %+v", f.Error)
	}
	daemon.Run(t, "rm", "--force", first)
	second := strings.TrimSpace(daemon.Run(t, "create", "--key", "order-1").Stdout)
	if second == first {
		t.Error("a removed sandbox was given again")
	}
	daemon.Run(t, "rm", "--force", second)
	daemon.AwaitNoSandbox(t)
}

// Many callers that ensure the same name at once get one sandbox.
func TestEnsureAtOnce(t *testing.T) {
	const n = 6
	ids := make(chan string, n)
	for range n {
		go func() {
			r := daemon.Try("create", "--ensure", "--name", "shared")
			ids <- strings.TrimSpace(r.Stdout + r.Stderr)
		}()
	}
	seen := map[string]bool{}
	for range n {
		seen[<-ids] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d answers: %v", len(seen), seen)
	}
	daemon.Run(t, "rm", "--force", "shared")
	daemon.AwaitNoSandbox(t)
}

func TestTimeToLive(t *testing.T) {
	box(t, daemon, "short", "--ttl", "4s")
	box(t, daemon, "longer", "--ttl", "60s")
	daemon.Run(t, "update", "--ttl", "1h", "longer")
	c := beside(t, daemon, "exec", "--json", "short", "--", "sleep", "1000")
	await(t, "the end of its time", func() bool {
		l := list(t, daemon)
		return len(l) == 1 && l[0].Name == "longer" && l[0].State == "running"
	})
	if c.end(t); !strings.Contains(c.stdout(), `"reason": "expired"`) {
		t.Errorf("the command of an expired sandbox said %s%s", c.stdout(), c.stderr())
	}
	if at := list(t, daemon)[0].ExpiresAt; at == nil || time.Until(*at) < 59*time.Minute {
		t.Errorf("the extended one expires at %v", at)
	}
	daemon.Run(t, "update", "--ttl", "never", "longer")
	if at := list(t, daemon)[0].ExpiresAt; at != nil {
		t.Errorf("one that never expires expires at %v", at)
	}
}

// However short the time of a run is, what ends it is that time, and it is said
// so: what it took to make the sandbox does not count.
func TestTimeToLiveOfARun(t *testing.T) {
	for _, ttl := range []string{"1ms", "5ms", "50ms"} {
		r := daemon.Try("run", "--json", "--ttl", ttl, "--", "sleep", "1000")
		early := strings.Contains(r.Stdout, `"code": "SBX-108"`) && strings.Contains(r.Stdout, "the sandbox's time to live is over")
		if expired := strings.Contains(r.Stdout, `"reason": "expired"`); !early && !expired {
			t.Errorf("a time of %s ended with %d: %s%s", ttl, r.Code, r.Stdout, r.Stderr)
		}
	}
	daemon.AwaitNoSandbox(t)
}

// A sandbox is not idle while a command runs, and is from its end on.
func TestIdleTimeout(t *testing.T) {
	box(t, daemon, "lazy", "--idle-timeout", "700ms")
	if out := daemon.Run(t, "exec", "lazy", "--", "sh", "-c", "sleep 1.5; echo still here").Stdout; out != "still here\n" {
		t.Errorf("printed %q", out)
	}
	await(t, "its end", func() bool { return len(list(t, daemon)) == 0 })
	daemon.AwaitNoSandbox(t)
}

// archiveOfOne returns a tar of one file.
func archiveOfOne(t *testing.T, name, content string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	_, writeErr := io.WriteString(w, content)
	if err := errors.Join(err, writeErr, w.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.String()
}

// A copy is use for as long as it takes.
func TestCopyIsUse(t *testing.T) {
	box(t, daemon, "lazy", "--idle-timeout", "700ms")
	archive := archiveOfOne(t, "big", strings.Repeat("x", 1<<20))
	c := beside(t, daemon, "cp", "-", "lazy:/tmp")
	c.send(t, archive[:len(archive)/2])
	time.Sleep(2 * time.Second) // the copy is to take longer than the sandbox may be idle
	c.send(t, archive[len(archive)/2:])
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != 0 {
		t.Fatalf("the copy ended with %d: %s", code, c.stderr())
	}
	if out := daemon.Run(t, "exec", "lazy", "--", "wc", "-c", "/tmp/big").Stdout; out != "1048576 /tmp/big\n" {
		t.Errorf("there is %q", out)
	}
	await(t, "its end", func() bool { return len(list(t, daemon)) == 0 })
	daemon.AwaitNoSandbox(t)
}

// A copy that a sandbox does not outlive says why the sandbox ended.
func TestCopyInOneThatEnds(t *testing.T) {
	box(t, daemon, "short", "--ttl", "2s")
	c := beside(t, daemon, "cp", "-", "short:/tmp")
	archive := archiveOfOne(t, "big", strings.Repeat("x", 1<<20))
	c.send(t, archive[:len(archive)/2])
	await(t, "the end of the sandbox", func() bool { return len(list(t, daemon)) == 0 })
	_, _ = io.WriteString(c.stdin, archive[len(archive)/2:]) // the client learns of it when it goes on, and reads no more
	_ = c.stdin.Close()
	if code := c.end(t); code != 125 || !strings.Contains(c.stderr(), "SBX-108") || !strings.Contains(c.stderr(), "time to live is over") {
		t.Errorf("the copy ended with %d: %s", code, c.stderr())
	}
	daemon.AwaitNoSandbox(t)
}

//caisson:kernel
func TestPauseFreezes(t *testing.T) {
	box(t, daemon, "cold")
	id := start(t, daemon, "cold", "sh", "-c", "while :; do echo tick; sleep 0.02; done")
	await(t, "ticks", func() bool { return ps(t, daemon, "cold")[0].StdoutBytes > 0 })
	daemon.Run(t, "pause", "cold")
	f := daemon.Refused(t, "SBX-114", "exec", "--json", "cold", "--", "true")
	if f.Error.Message != "sandbox cold is paused" {
		t.Errorf("message %q", f.Error.Message)
	}
	daemon.Refused(t, "SBX-114", "kill", "-o", "json", "-s", "KILL", "cold", id)
	before := ps(t, daemon, "cold")[0].StdoutBytes
	time.Sleep(300 * time.Millisecond)                                   // time in which a command that runs prints
	if after := ps(t, daemon, "cold")[0].StdoutBytes; after > before+5 { // one tick may have been in the pipe
		t.Errorf("%d bytes when paused, %d later", before, after)
	}
	daemon.Run(t, "pause", "cold") // it is paused: nothing to do
	daemon.Run(t, "resume", "cold")
	await(t, "more ticks", func() bool { return ps(t, daemon, "cold")[0].StdoutBytes > before+20 })
	daemon.Run(t, "kill", "-s", "KILL", "cold", id)
	daemon.Run(t, "pause", "cold")
	daemon.Run(t, "rm", "--force", "cold") // a frozen one ends too
	daemon.AwaitNoSandbox(t)
}

// A pause that lasts longer than PID 1 may take for an answer is not held
// against it, and what was due meanwhile happens afterwards: what a copy that broke off
// had begun is undone.
func TestLongPause(t *testing.T) {
	t.Parallel()
	box(t, daemon, "long")
	c := beside(t, daemon, "exec", "--json", "--timeout", "6s", "long", "--", "sleep", "1000")
	await(t, "the command", func() bool { return len(ps(t, daemon, "long")) == 1 })
	var many []file // they are not undone at once
	for i := range 1000 {
		many = append(many, file{name: strconv.Itoa(i)})
	}
	cp := beginCopy(t, "long", tarOf(t, many))
	daemon.Run(t, "pause", "long")
	if err := cp.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(12 * time.Second) // PID 1 may take 10 s, what copies 5 s to undo it
	if jobs := ps(t, daemon, "long"); jobs[0].State != "running" {
		t.Errorf("while it is paused: %+v", jobs)
	}
	daemon.Run(t, "resume", "long")
	if code := c.end(t); code != 124 {
		t.Errorf("the command ended with %d: %s%s", code, c.stdout(), c.stderr())
	}
	awaitCopied(t, "long", "")
}

func TestStopKeepsTheOutput(t *testing.T) {
	box(t, daemon, "ending")
	id := start(t, daemon, "ending", "sh", "-c", "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done")
	await(t, "the command", func() bool { return ps(t, daemon, "ending")[0].StdoutBytes > 0 })
	wait := beside(t, daemon, "wait", "ending")
	daemon.Run(t, "stop", "ending")
	wait.end(t)
	if out := daemon.Run(t, "logs", "--exec", id, "ending").Stdout; out != "up\nasked\n" {
		t.Errorf("kept %q", out)
	}
	if r := daemon.Try("wait", "ending", id); r.Code != 3 {
		t.Errorf("wait gave %d, want the command's 3\n%s", r.Code, r.Stderr)
	}
	daemon.Run(t, "stop", "ending") // it has: no error
	if l := list(t, daemon); len(l) != 1 || l[0].State != "exited" {
		t.Errorf("listed %+v", l)
	}
	daemon.Run(t, "rm", "ending")
	daemon.AwaitNoSandbox(t)
}

// New limits of a live sandbox are what the kernel enforces from then on.
//
//caisson:kernel
func TestUpdateLimits(t *testing.T) {
	box(t, daemon, "growing", "-m", "32M")
	hungry := []string{"exec", "--json", "growing", "--", "sh", "-c", "head -c 60m /dev/zero | tail -c 55m > /dev/null; exit $?"}
	if r := daemon.Try(hungry...); r.Code != 137 {
		t.Errorf("within 32M: %s%s", r.Stdout, r.Stderr)
	}
	daemon.Run(t, "update", "-m", "128M", "-l", "k=v", "growing")
	if r := daemon.Try(hungry...); r.Code != 0 {
		t.Errorf("within 128M: %s%s", r.Stdout, r.Stderr)
	}
	l := inspect(t, daemon, "growing")
	if l.Limits.MemoryBytes != 128<<20 || l.Labels["k"] != "v" {
		t.Errorf("inspected %+v", l)
	}
	if posture := postureOf(t, daemon, "growing"); !slices.Contains(slices.Collect(maps.Values(posture)), strconv.Itoa(128<<20)) {
		t.Errorf("the posture is that before the update: %v", posture)
	}
	// RLIMIT_NPROC stays that of the creation: what it would not let be is refused.
	daemon.Run(t, "update", "--pids", "20", "growing")
	const fork = `i=0; while [ $i -lt 24 ]; do sleep 3 & i=$((i+1)); done; wait`
	if r := daemon.Try("exec", "growing", "--", "sh", "-c", fork); r.Code == 0 {
		t.Error("24 processes within 20")
	}
	f := daemon.Refused(t, "SBX-102", "update", "-o", "json", "--pids", "257", "growing")
	if f.Error.Message != "pids 257 is above 256: the RLIMIT_NPROC of a live sandbox is that of its creation" {
		t.Errorf("message %q", f.Error.Message)
	}
	daemon.Run(t, "update", "--pids", "256", "growing")
	if r := daemon.Try("exec", "growing", "--", "sh", "-c", fork); r.Code != 0 {
		t.Errorf("24 processes within 256: code %d %s", r.Code, r.Stderr)
	}
	daemon.Refused(t, "SBX-102", "update", "-o", "json", "-m", "1M", "growing")
	if l := inspect(t, daemon, "growing"); l.Limits.MemoryBytes != 128<<20 {
		t.Errorf("a refused update changed it: %+v", l.Limits)
	}
}

// Restart makes a sandbox anew by the request that it was made by.
func TestRestart(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers)
	id := box(t, d, "web", "-m", "64M", "-l", "a=b", "-p", "0:8080", "--key", "once", "-e", "A=b")
	start(t, d, "web", "sh", "-c", "touch /tmp/old; exec sleep 1000")
	d.Run(t, "update", "-m", "65M", "-l", "a=c", "web")
	pid := inspect(t, d, "web").PID
	var l []listed
	d.Run(t, "restart", "web", "-o", "json").JSON(t, &l)
	now := inspect(t, d, "web")
	if len(l) != 1 || l[0].ID == id || now.ID != l[0].ID || now.State != "running" || now.Limits.MemoryBytes != 64<<20 || now.Labels["a"] != "b" || alive(pid) {
		t.Errorf("restarted: %+v, %+v", l, now)
	}
	if out := d.Run(t, "exec", "web", "--", "sh", "-c", "echo $A; ls /tmp").Stdout; out != "b\n" {
		t.Errorf("the new one has %q", out)
	}
	if jobs := ps(t, d, "web"); len(jobs) != 1 {
		t.Errorf("commands of the old one: %+v", jobs)
	}
	if again := strings.TrimSpace(d.Run(t, "create", "--name", "web", "-m", "64M", "-l", "a=b", "-p", "0:8080", "--key", "once", "-e", "A=b").Stdout); again != now.ID {
		t.Errorf("the key of the request gives %s, not %s", again, now.ID)
	}
	d.Run(t, "stop", "--grace", "0s", "web")
	d.Run(t, "restart", "web")
	if s := inspect(t, d, "web").State; s != "running" {
		t.Errorf("a stopped one is %s after a restart", s)
	}
	for ref, want := range map[string]string{
		"nobody": "SBX-107",
		strings.TrimSpace(d.Run(t, "run", "-d", "--name", "job", "--", "sleep", "1000").Stdout): "SBX-108",
	} {
		if f := d.Refused(t, want, "restart", ref, "-o", "json"); f.Error.Retryable {
			t.Errorf("%s: retryable: %+v", ref, f)
		}
	}
	d.User(t, ann).Run(t, "create", "--name", "anns")
	d.Refused(t, "SBX-805", "restart", "anns", "-o", "json")
	if inspect(t, d, "anns").State != "running" || inspect(t, d, "job").State != "running" {
		t.Error("a refused restart ended a sandbox")
	}
	d.Run(t, "rm", "--all", "--force")
}

// Clean ends what an earlier task left in a sandbox, and keeps its files.
func TestClean(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "dirty", "-p", "0:8080")
	d.Run(t, "exec", "dirty", "--", "sh", "-c", "mkdir -p /tmp/a/b; touch /tmp/a/b/c '/tmp/ d'; ln -s /home/caisson /tmp/link; touch /home/caisson/kept")
	d.Run(t, "exec", "dirty", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do (trap '' TERM; exec setsid sleep 1000) & done; nc -l -p 8080 & sleep 0.2")
	id := start(t, d, "dirty", "sleep", "1000")
	before := d.Try("exec", "dirty", "--", "sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep; netstat -ltn | grep -c :8080").Stdout
	if before != "10\n1\n" {
		t.Fatalf("the probe finds %q, not ten processes and a listener", before)
	}
	pid := inspect(t, d, "dirty").PID
	begin := time.Now()
	var done struct{ Processes, Files int }
	d.Run(t, "clean", "dirty", "-o", "json").JSON(t, &done)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %s", took)
	}
	if done.Processes < 11 || done.Files != 3 {
		t.Errorf("cleaned %+v", done)
	}
	if after := d.Try("exec", "dirty", "--", "sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep; netstat -ltn | grep -c :8080; ls -A /tmp; ls /home/caisson").Stdout; after != "0\n0\nkept\n" {
		t.Errorf("after it: %q", after)
	}
	if now := inspect(t, d, "dirty"); now.PID != pid || now.State != "running" {
		t.Errorf("the sandbox is %+v", now)
	}
	if r := d.Try("wait", "dirty", id); r.Code != 137 {
		t.Errorf("the command that ran ended with %d", r.Code)
	}
	d.Run(t, "clean", "dirty") // there is nothing to do
	d.Run(t, "pause", "dirty")
	d.Refused(t, "SBX-114", "clean", "dirty", "-o", "json")
	if inspect(t, d, "dirty").State != "paused" {
		t.Error("a refused clean resumed the sandbox")
	}
}

// TestRunKeep: the sandbox of run --keep stays, with its environment and files, however its first
// command ended.
func TestRunKeep(t *testing.T) {
	d := harness.StartWith(t, "")
	r := d.Try("run", "--keep", "--name", "kept", "-e", "A=1", "--", "sh", "-c", "echo $A > /tmp/a; exit 4")
	if r.Code != 4 || !strings.Contains(r.Stderr, "caisson exec kept") {
		t.Errorf("%+v", r)
	}
	if out := d.Run(t, "exec", "kept", "--", "sh", "-c", "cat /tmp/a; echo $A").Stdout; out != "1\n1\n" {
		t.Errorf("the next command prints %q", out)
	}
	if r := d.Try("run", "--keep", "--name", "kept", "--", "true"); r.Code != 125 || !strings.Contains(r.Stderr, "SBX-106") || strings.Contains(r.Stderr, "stays") {
		t.Errorf("a name that is taken: %+v", r)
	}
	d.Run(t, "rm", "--force", "kept")
	for _, flag := range []string{"-d", "--rm"} {
		d.Refused(t, "SBX-801", "run", "--json", "--keep", flag, "--", "true")
	}
	d.Refused(t, "SBX-801", "run", "--json", "--keep", "--image", "base")
}

// TestEnsureClean: create --ensure --clean gives the same sandbox without what commands left.
func TestEnsureClean(t *testing.T) {
	d := harness.StartWith(t, "")
	create := []string{"create", "--ensure", "--clean", "--name", "again"}
	first := d.Run(t, create...).Stdout
	start(t, d, "again", "sleep", "1000")
	d.Run(t, "exec", "again", "--", "touch", "/tmp/left", "/home/caisson/kept")
	const probe = "ls -A /tmp /home/caisson; cat /proc/[0-9]*/comm | grep -c sleep"
	if out := d.Try("exec", "again", "--", "sh", "-c", probe).Stdout; !strings.Contains(out, "left") || !strings.HasSuffix(out, "\n1\n") {
		t.Fatalf("the probe finds %q", out)
	}
	if second := d.Run(t, create...).Stdout; second != first {
		t.Errorf("another sandbox: %s, %s", first, second)
	}
	if out := d.Try("exec", "again", "--", "sh", "-c", probe).Stdout; strings.Contains(out, "left") || !strings.Contains(out, "kept") || !strings.HasSuffix(out, "\n0\n") {
		t.Errorf("after it: %q", out)
	}
	d.Refused(t, "SBX-801", "create", "--json", "--clean", "--name", "other")
}
