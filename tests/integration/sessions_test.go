package integration

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// box makes a sandbox of d that is removed at the end of t.
func box(t *testing.T, d *harness.Daemon, name string, flags ...string) string {
	t.Helper()
	id := strings.TrimSpace(d.Run(t, append([]string{"create", "--name", name}, flags...)...).Stdout)
	t.Cleanup(func() {
		if r := d.Try("rm", "--force", name, "-o", "json"); r.Code != 0 && !strings.Contains(r.Stdout, "SBX-107") {
			t.Errorf("rm %s: %s%s", name, r.Stdout, r.Stderr)
		}
	})
	return id
}

// listed is what ls and inspect tell of a sandbox.
type listed struct {
	ID, Name, State, Profile, Image string
	PID                             int
	Labels                          map[string]string
	Session, Task, Parent, Cgroup   string
	ExpiresAt                       *time.Time        `json:"expires_at"`
	IdleTimeout                     *harness.Duration `json:"idle_timeout"`
	IdleSince                       *time.Time        `json:"idle_since"`
	OwnerUID                        uint32            `json:"owner_uid"`
	Execs                           int
	Workspace                       *struct{ Dir, Mode string }
	Limits                          struct {
		MemoryBytes int64 `json:"memory_bytes"`
		MilliCPU    int64 `json:"milli_cpu"`
		PIDs        int64
	}
	Posture []struct{ Name, Declared, Live string }
}

func inspect(t *testing.T, d *harness.Daemon, ref string) listed {
	t.Helper()
	var l listed
	d.Run(t, "inspect", "--all", ref).JSONIn(t, "sandbox", &l)
	return l
}

func list(t *testing.T, d *harness.Daemon, flags ...string) []listed {
	t.Helper()
	var all []listed
	d.Run(t, append([]string{"ls", "-o", "json"}, flags...)...).JSON(t, &all)
	return all
}

// job is what ps tells of a command.
type job struct {
	ID, State   string
	Args        []string
	StdoutBytes int64 `json:"stdout_bytes"`
	Result      *harness.RunResult
}

func ps(t *testing.T, d *harness.Daemon, ref string) []job {
	t.Helper()
	var jobs []job
	d.Run(t, "ps", ref, "-o", "json").JSON(t, &jobs)
	return jobs
}

// start leaves a command running in a sandbox and returns its ID.
func start(t *testing.T, d *harness.Daemon, ref string, words ...string) string {
	t.Helper()
	return strings.TrimSpace(d.Run(t, append([]string{"exec", "-d", ref, "--"}, words...)...).Stdout)
}

// client is a call that goes on beside the test.
type client struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu        sync.Mutex
	out, errs bytes.Buffer
	ended     chan struct{}
	code      int
}

// beside begins a client call. Its standard input is open until closed.
func beside(t *testing.T, d *harness.Daemon, args ...string) *client {
	t.Helper()
	c := &client{cmd: d.Command(t.Context(), args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.to(&c.out), c.to(&c.errs)
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait() // the code says it
		c.code = c.cmd.ProcessState.ExitCode()
		close(c.ended)
	}()
	return c
}

type lockedWriter struct {
	c *client
	w io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.w.Write(p)
}

func (c *client) to(w io.Writer) io.Writer { return lockedWriter{c, w} }

func (c *client) stdout() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// size is the length of stdout.
func (c *client) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Len()
}

func (c *client) stderr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs.String()
}

// end waits for the end of the call and returns its exit code.
func (c *client) end(t *testing.T) int {
	t.Helper()
	select {
	case <-c.ended:
		return c.code
	case <-time.After(60 * time.Second):
		t.Fatalf("caisson %q does not end\n%s%s", c.cmd.Args, c.stdout(), c.stderr())
		return -1
	}
}

// send writes to the call's standard input.
func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, text); err != nil {
		t.Fatal(err)
	}
}

func (c *client) awaitStdout(t *testing.T, text string) {
	t.Helper()
	await(t, "output "+text, func() bool { return strings.Contains(c.stdout(), text) })
}

// ownerOf returns the user to whom a file belongs.
func ownerOf(st os.FileInfo) uint32 { return st.Sys().(*syscall.Stat_t).Uid }

// say writes to the client's standard input.
func (c *client) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, text); err != nil {
		t.Fatal(err)
	}
}

// wait and logs take the same filters: the one waits for all that they select, the other shows
// whose each line is.
func TestWaitAndLogsOfAll(t *testing.T) {
	for _, job := range [][2]string{ // in the order of the list
		{"many-a", "sleep 1; echo one; printf two; exit 4"}, {"many-b", "echo three; echo four"}, {"many-c", "sleep 0.5; exit 3"},
	} {
		daemon.Run(t, "run", "-d", "--name", job[0], "--session", "many", "--", "sh", "-c", job[1])
		t.Cleanup(func() { daemon.Try("rm", "--force", job[0]) })
	}
	began := time.Now()
	if r := daemon.Try("wait", "--session", "many"); r.Code != 4 || len(strings.Split(r.Stdout, "\n")) != 5 || time.Since(began) < 500*time.Millisecond {
		t.Errorf("wait: code %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	var list []struct {
		Name   string
		Result struct {
			ExitCode int `json:"exit_code"`
		}
	}
	daemon.Try("wait", "--name", "many-[bc]", "--json").JSON(t, &list)
	if len(list) != 2 || list[0].Result.ExitCode+list[1].Result.ExitCode != 3 {
		t.Errorf("wait --json: %+v", list)
	}
	daemon.Run(t, "create", "--name", "many-d", "--session", "many") // for no command
	t.Cleanup(func() { daemon.Try("rm", "--force", "many-d") })
	if out := daemon.Run(t, "logs", "--session", "many").Stdout; out != "many-a | one\nmany-a | two\nmany-b | three\nmany-b | four\n" {
		t.Errorf("logs: %q", out)
	}
	if out := daemon.Run(t, "logs", "--session", "many", "--tail", "1").Stdout; out != "many-a | two\nmany-b | four\n" {
		t.Errorf("logs --tail: %q", out)
	}
	for _, args := range [][]string{{"wait"}, {"logs"}, {"wait", "--session", "many", "many-a"}, {"logs", "--session", "many", "many-a"}, {"logs", "--session", "many", "--follow"}, {"wait", "--state", "dead"}} {
		if r := daemon.Try(args...); r.Code != 125 {
			t.Errorf("%q: code %d, %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// TestFilters: list, stop and remove what a filter selects, and nothing else.
func TestFilters(t *testing.T) {
	for _, args := range [][]string{
		{"--name", "filter-a1", "--session", "fs1", "-l", "team=blue"},
		{"--name", "filter-a2", "--session", "fs1", "--task", "ft1"},
		{"--name", "filter-b1", "--session", "fs2", "-l", "team=blue"},
	} {
		daemon.Run(t, append([]string{"create"}, args...)...)
		t.Cleanup(func() { daemon.Try("rm", "--force", args[1]) })
	}
	names := func(args ...string) (names string) {
		var list []struct{ Name string }
		daemon.Try(append([]string{"ls", "--json"}, args...)...).JSON(t, &list)
		for _, box := range list {
			names += box.Name + " "
		}
		return names
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--session", "fs1"}, "filter-a1 filter-a2 "},
		{[]string{"--session", "fs1", "--task", "ft1"}, "filter-a2 "},
		{[]string{"--name", "filter-*1"}, "filter-a1 filter-b1 "},
		{[]string{"--name", "filter-*", "-l", "team=blue", "--session", "fs2"}, "filter-b1 "},
		{[]string{"--name", "filter-*", "--state", "exited"}, ""},
		{[]string{"--name", "filter-*", "--state", "exited", "--state", "running", "--older-than", "1ms"}, "filter-a1 filter-a2 filter-b1 "},
		{[]string{"--name", "filter-*", "--older-than", "1h"}, ""},
	} {
		if got := names(tt.args...); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
	daemon.Run(t, "stop", "--grace", "0s", "--session", "fs1")
	if got := names("--name", "filter-*", "--state", "exited"); got != "filter-a1 filter-a2 " {
		t.Errorf("stopped are %q", got)
	}
	daemon.Run(t, "rm", "--name", "filter-*", "--state", "exited")
	if got := names("--name", "filter-*"); got != "filter-b1 " {
		t.Errorf("left are %q", got)
	}
	daemon.Run(t, "rm", "--session", "no-such-session") // nothing is selected, and nothing removed
	for _, args := range [][]string{{"rm"}, {"rm", "--session", "fs2", "filter-b1"}, {"rm", "--session", ""}, {"ls", "--state", "dead"}, {"ls", "--name", "["}, {"ls", "--older-than", "soon"}} {
		if r := daemon.Try(args...); r.Code != 125 {
			t.Errorf("%q: code %d, %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	if r := daemon.Try("ls", "--state", "runing"); !strings.Contains(r.Stderr, `there is no state "runing"; did you mean "running"?`) {
		t.Errorf("a state with a wrong letter: %s", r.Stderr)
	}
	if got := names("--name", "filter-*"); got != "filter-b1 " {
		t.Errorf("after refusals %q are left", got)
	}
}
