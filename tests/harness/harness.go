// Package harness runs a real daemon with its own containerd for the tests, in
// a scratch root of its own, and proves at the end that nothing is left of it.
package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/config"
)

// settings leave host ids for other daemons: with the default of 1024 blocks
// there is room for three on a host.
const settings = "ids: {blocks: 64}\n"

// cold has nothing kept ready: tests count what is there.
const cold = "warm: 0\n"

// Daemon is a running caissond and where it works.
type Daemon struct {
	Root, State, Socket string
	// Wrap is put before the daemon's command line, "unshare --net" for example.
	Wrap []string
	// Settings is the daemon's configuration; empty is that of most tests.
	Settings string
	// Program is a caissond other than the one under test, and Env what it gets
	// beside PATH.
	Program string
	Env     []string
	// Config is YAML that the daemon's configuration file holds beside the
	// harness's own. It may be changed between two launches.
	Config string

	cmd *exec.Cmd
	log *record
	// ended is closed when the process was collected.
	ended chan struct{}
}

// The time that the steps of a test may take on a busy machine.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 90 * time.Second
	runTimeout   = 120 * time.Second
)

// Bin returns the path of a program under test.
func Bin(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("CAISSON_BIN_DIR")
	if dir == "" {
		t.Fatal("CAISSON_BIN_DIR does not say where the programs are: run make test")
	}
	return filepath.Join(dir, name)
}

// Start starts a daemon with the given flags and stops it at the end of t,
// which fails if the daemon leaves anything behind.
func Start(t testing.TB, flags ...string) *Daemon {
	t.Helper()
	d := New(t)
	d.start(t, flags...)
	return d
}

func (d *Daemon) start(t testing.TB, flags ...string) {
	t.Helper()
	d.Launch(t, flags...)
	t.Cleanup(func() {
		d.Stop(t)
		d.CheckNothingLeft(t)
	})
}

// StartWith starts a daemon with config in its configuration file. It may be
// killed and launched again: at the end of t one that runs is stopped, and one
// that was killed is launched once more, to show that it leaves nothing either.
func StartWith(t testing.TB, config string) *Daemon {
	t.Helper()
	d := New(t)
	d.Config = config
	d.Launch(t)
	t.Cleanup(func() {
		if !d.Runs() {
			d.Launch(t)
		}
		d.Stop(t)
		d.CheckNothingLeft(t)
	})
	return d
}

// StateParent is where state directories are made.
var StateParent = "/run"

// New makes the directories for a daemon and starts nothing. The state
// directory's name is short because sockets lie below it.
func New(t testing.TB) *Daemon {
	t.Helper()
	root, err := os.MkdirTemp("/var/tmp", "caisson-test-")
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp(StateParent, "caisson-t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.RemoveAll(root), os.RemoveAll(state)); err != nil {
			t.Error(err)
		}
	})
	return &Daemon{Root: root, State: state, Socket: filepath.Join(state, "caisson.sock")}
}

// Launch starts the daemon and waits until it answers.
func (d *Daemon) Launch(t testing.TB, flags ...string) {
	t.Helper()
	d.Spawn(t, flags...)
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		select {
		case <-d.ended:
			t.Fatalf("the daemon ended at its start:\n%s", d.log)
		case <-time.After(20 * time.Millisecond): // the socket appears when it is ready; nothing announces it
		}
		if _, err := os.Stat(d.Socket); err != nil {
			continue // a call takes as much of a processor as the daemon's start does
		}
		if r := d.Try("ls", "-o", "json"); r.Code == 0 {
			return
		}
	}
	t.Fatalf("the daemon did not answer within %s:\n%s", startTimeout, d.log)
}

// Configure writes the configuration file anew, with config beside the harness's own.
func (d *Daemon) Configure(t testing.TB, config string) (file string) {
	t.Helper()
	d.Config = config
	file = filepath.Join(d.Root, "config.yaml")
	text := cmp.Or(d.Settings, settings) + d.Config
	if !strings.Contains(text, "warm:") {
		text += cold
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Spawn starts the daemon and does not wait for it.
func (d *Daemon) Spawn(t testing.TB, flags ...string) {
	t.Helper()
	file := d.Configure(t, d.Config)
	args := append([]string{"--config", file, "--root", d.Root, "--state", d.State}, flags...)
	if !strings.Contains(d.Config, "keep_on_exit") {
		args = append(args, "--keep-on-exit=false") // a test that says nothing of it leaves nothing
	}
	d.log = &record{}
	line := append(slices.Clone(d.Wrap), append([]string{cmp.Or(d.Program, Bin(t, "caissond"))}, args...)...)
	d.cmd = exec.Command(line[0], line[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, d.Env...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	d.ended = make(chan struct{})
	started := make(chan error, 1)
	go carry(d.cmd, started, d.ended)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}

// carry runs cmd from its start to its end on one thread: the death signal comes
// with the end of the thread that started it (prctl(2)), and threads that enter a
// namespace are thrown away.
func carry(cmd *exec.Cmd, started chan<- error, ended chan<- struct{}) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = cmd.Wait() // the exit code is looked at by whoever waits for the end
	close(ended)
}

// PID is the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// ExitCode returns the code of a daemon that has ended.
func (d *Daemon) ExitCode() int { return d.cmd.ProcessState.ExitCode() }

// Runs reports whether the daemon's process is there.
func (d *Daemon) Runs() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// Kill ends the daemon the hard way.
func (d *Daemon) Kill(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.ended
}

// Ended is closed when the daemon has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// Stop ends the daemon as an operator would.
func (d *Daemon) Stop(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	d.AwaitEnd(t)
	if t.Failed() {
		t.Logf("the daemon's log:\n%s", d.log)
	}
}

// AwaitEnd waits until the daemon has ended by itself.
func (d *Daemon) AwaitEnd(t testing.TB) {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(stopTimeout):
		t.Errorf("the daemon did not end within %s:\n%s", stopTimeout, d.log)
		d.Kill(t)
	}
}

// record keeps what a process writes while others read it.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// Log returns what the daemon has logged. It is complete once it has ended.
func (d *Daemon) Log() string { return d.log.String() }

// Result is what a client call gave.
type Result struct {
	Args           []string
	Stdout, Stderr string
	Code           int
	Duration       time.Duration
}

// Command prepares a client call.
func (d *Daemon) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson"), args...)
	cmd.Env = []string{"CAISSON_SOCKET=" + d.Socket, "PATH=" + os.Getenv("PATH"), "HOST_CANARY=must-not-be-inherited"}
	return cmd
}

// Try makes a client call.
func (d *Daemon) Try(args ...string) Result { return d.TryWith("", args...) }

// TryWith makes a client call with the given standard input.
func (d *Daemon) TryWith(stdin string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := d.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	r := Result{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode(), Duration: time.Since(start)}
	if err != nil && r.Code < 0 {
		r.Stderr += fmt.Sprintf("\n[the client ended with %v]", err)
	}
	return r
}

// Run makes a client call that must succeed.
func (d *Daemon) Run(t testing.TB, args ...string) Result {
	t.Helper()
	r := d.Try(args...)
	if r.Code != 0 {
		t.Fatalf("caisson %q: exit code %d\nstdout: %s\nstderr: %s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r
}

// JSON decodes what a call printed.
func (r Result) JSON(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), v); err != nil {
		t.Fatalf("caisson %q printed no JSON: %v\n%s\n%s", r.Args, err, r.Stdout, r.Stderr)
	}
}

// JSONIn decodes what a call printed, and into the same value the object in one of its fields.
func (r Result) JSONIn(t testing.TB, field string, v any) {
	t.Helper()
	var whole map[string]json.RawMessage
	r.JSON(t, &whole)
	r.JSON(t, v)
	if err := json.Unmarshal(whole[field], v); err != nil {
		t.Fatalf("caisson %q printed no %s: %v\n%s\n%s", r.Args, field, err, r.Stdout, r.Stderr)
	}
}

// Duration is one in JSON, such as "1.5s".
type Duration struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// Milliseconds is d in them.
func (d Duration) Milliseconds() float64 { return float64(d.Duration) / float64(time.Millisecond) }

// RunResult is the result of a run with its output.
type RunResult struct {
	Source        string   `json:"source"`
	ExitCode      int      `json:"exit_code"`
	Signal        int      `json:"signal"`
	TimedOut      bool     `json:"timed_out"`
	OOMKilled     bool     `json:"oom_killed"`
	PIDsLimitHit  bool     `json:"pids_limit_hit"`
	Stdout        string   `json:"stdout_text"`
	Stderr        string   `json:"stderr_text"`
	StdoutBytes   int64    `json:"stdout_bytes"`
	StdoutSkipped int64    `json:"stdout_skipped"`
	Truncated     bool     `json:"truncated"`
	Duration      Duration `json:"duration"`
	Reason        string   `json:"reason"`
	// EndedProcesses were ended with the command.
	EndedProcesses int      `json:"ended_processes"`
	Warnings       []string `json:"warnings"`
	Usage          struct {
		CPU        Duration `json:"cpu"`
		PeakMemory int64    `json:"peak_memory_bytes"`
	} `json:"usage"`
	Sandbox struct {
		ID      string `json:"id"`
		Network string `json:"network"`
	} `json:"sandbox"`
}

// RunJSON runs a command in a sandbox and decodes the result, whatever the
// command's exit code.
func (d *Daemon) RunJSON(t testing.TB, args ...string) RunResult {
	t.Helper()
	var r RunResult
	d.Try(append([]string{"run", "--json"}, args...)...).JSONIn(t, "result", &r)
	return r
}

// Failure is the JSON form of a refusal.
type Failure struct {
	Error struct {
		Code, Message, Cause, Remedy string
		Retryable                    bool
	}
}

// Refused makes a call that must be refused with the given code, and returns
// the refusal.
func (d *Daemon) Refused(t testing.TB, code string, args ...string) Failure {
	t.Helper()
	return d.Try(args...).Refused(t, code)
}

// Refused returns the refusal that a call ended with, which must have the code.
func (r Result) Refused(t testing.TB, code string) Failure {
	t.Helper()
	if r.Code != 125 && r.Code != 126 && r.Code != 127 {
		t.Fatalf("caisson %q: exit code %d, want a refusal\n%s%s", r.Args, r.Code, r.Stdout, r.Stderr)
	}
	var f Failure
	r.JSON(t, &f)
	if f.Error.Code != code || f.Error.Message == "" || f.Error.Remedy == "" {
		t.Fatalf("caisson %q: refused with %+v, want %s with a message and a remedy", r.Args, f.Error, code)
	}
	return f
}

// instanceOf is the name that the daemon derives from its root: a test must
// find the daemon's cgroups without asking it.
func instanceOf(root string) string {
	c := config.Default()
	c.Root = root
	return c.Instance()
}
