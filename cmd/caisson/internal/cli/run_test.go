package cli_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// capture is a daemon that notes each request as text.
func capture(got *string) *servertest.Fake {
	return &servertest.Fake{OnRun: func(_ context.Context, r plan.Request, _ runtime.IO) (*runtime.Result, error) {
		c, e := r.Create, r.Exec
		l := cmp.Or(c.Limits, &caissonv1.Limits{})
		*got = fmt.Sprintf("Args:%v Env:%v Cwd:%v User:%v Name:%v Image:%v Profile:%v Network:%v Allow:%v Labels:%v Session:%v Task:%v TTY:%v "+
			"MemoryBytes:%v MilliCPU:%v PIDs:%v OpenFiles:%v TmpfsBytes:%v Timeout:%v OutputLimit:%v Workspace:%v Mounts:%v",
			e.Args, e.Env, e.Cwd, c.User, c.Name, c.Image, c.Profile, c.Network, c.Allow, c.Labels, c.Session, c.Task, e.TTY != nil,
			deref(l.MemoryBytes), deref(l.MilliCpu), deref(l.Pids), deref(l.OpenFiles), deref(l.TmpfsBytes), deref(e.Timeout), deref(e.OutputLimit), deref(c.Workspace), mountsText(c.Mounts))
		return &runtime.Result{}, nil
	}}
}

func mountsText(list []plan.MountRequest) (out []string) {
	for _, m := range list {
		out = append(out, fmt.Sprint(m.Type, " ", m.Source, " ", m.Target, " ", m.ReadOnly, " ", deref(m.SizeBytes)))
	}
	return out
}

func deref[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%+v", *p)
}

// ends is a daemon whose command ends like r.
func ends(r runtime.Result) *servertest.Fake {
	return &servertest.Fake{OnRun: func(context.Context, plan.Request, runtime.IO) (*runtime.Result, error) { return &r, nil }}
}

// fails is a daemon that cannot run.
func fails(err error) *servertest.Fake {
	return &servertest.Fake{OnRun: func(context.Context, plan.Request, runtime.IO) (*runtime.Result, error) { return nil, err }}
}

// --quiet leaves the line about refusals out, which the result has anyway.
func TestQuiet(t *testing.T) {
	fake := ends(runtime.Result{Refusals: []runtime.Refusal{{Name: "b.example", Port: 80, Code: sbxerr.EgressDenied, Needs: "b.example:80"}}})
	if code, out, stderr := invoke(t, fake, "", "run", "-q", "--", "x"); code != 0 || stderr != "" {
		t.Errorf("%d: %s%s", code, out, stderr)
	}
	_, out, _ := invoke(t, fake, "", "run", "--json", "--", "x")
	if want := `"needs": "b.example:80"`; !strings.Contains(out, want) {
		t.Errorf("%s is not in %s", want, out)
	}
}

func TestExitCodes(t *testing.T) {
	tests := []struct {
		name string
		fake *servertest.Fake
		code int
		note string // a part of standard error
	}{
		{"success", ends(runtime.Result{}), 0, ""},
		{"the command's own", ends(runtime.Result{ExitCode: 42}), 42, ""},
		{"a signal", ends(runtime.Result{ExitCode: 143, Signal: 15}), 143, ""},
		{"timeout", ends(runtime.Result{ExitCode: 124, TimedOut: true}), 124, "timeout"},
		{"out of memory", ends(runtime.Result{ExitCode: 137, OOMKilled: true}), 137, "out of memory"},
		{"too many processes", ends(runtime.Result{ExitCode: 1, PIDsLimitHit: true}), 1, "limit of processes"},
		{"a clamped limit", ends(runtime.Result{Warnings: []string{"RLIMIT_NOFILE is 5 instead of 9"}}), 0, "caisson: warning: RLIMIT_NOFILE is 5 instead of 9\n"},
		{"a refusal", ends(runtime.Result{Refusals: []runtime.Refusal{{Name: "b.example", Code: sbxerr.EgressDenied, Needs: "b.example"}}}), 0,
			"caisson: refused: b.example (lookup). Allow it with --allow b.example\n"},
		{"several refusals", ends(runtime.Result{Refusals: []runtime.Refusal{{Name: "b.example", Port: 8080, Needs: "b.example:8080"}, {Name: "10.0.0.1"}}}), 0,
			"caisson: refused: b.example:8080, 10.0.0.1. Allow with --allow b.example:8080\n"},
		{"a refusal that no rule can lift", ends(runtime.Result{Refusals: []runtime.Refusal{{Name: "127.0.0.1", Port: 1}}}), 0, "refused: 127.0.0.1:1. caisson policy check says why\n"},
		{"a refusal of the mode bridge", ends(runtime.Result{Network: "bridge", Refusals: []runtime.Refusal{{Name: "10.0.0.1", Port: 1}}}), 0, "refused: 10.0.0.1:1. caisson spec --network bridge shows the rules\n"},
		{"a refusal without a network", ends(runtime.Result{Refusals: []runtime.Refusal{{Code: sbxerr.EgressDenied}}}), 0, "caisson: refused: the sandbox has no network (mode none). Allow"},
		{"another warning", ends(runtime.Result{Warnings: []string{"output of stdout was not kept"}}), 0, ""},
		{"lost", ends(runtime.Result{ExitCode: 137, Reason: runtime.ReasonLost}), 137, "without a word"},
		{"not executable", ends(runtime.Result{ExitCode: 126}), 126, ""},
		{"not executable, as an error", fails(sbxerr.New(sbxerr.NotExecutable, "a.b", "no")), 126, "SBX-607"},
		{"not found, as an error", fails(sbxerr.New(sbxerr.CommandAbsent, "a.b", "no")), 127, "SBX-608"},
		{"refused", fails(sbxerr.New(sbxerr.NetworkMode, "a.b", "no")), 125, "SBX-403"},
		{"a bug", fails(errors.New("unwrapped")), 125, "SBX-000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, stderr := invoke(t, tt.fake, "", "run", "--", "x")
			if code != tt.code || !strings.Contains(stderr, tt.note) || (tt.note == "") != (stderr == "") {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, tt.code, tt.note)
			}
		})
	}
}

func TestRunJSON(t *testing.T) {
	result := *sample().Infos[1].Result
	f := &servertest.Fake{OnRun: func(_ context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		_, err := io.WriteString(rio.Stdout, "text <&> ä\n")
		_, err2 := io.WriteString(rio.Stderr, "bytes \xff")
		return &result, errors.Join(err, err2)
	}}
	code, stdout, stderr := invoke(t, f, "", "run", "--json", "--", "x")
	if code != 137 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	golden(t, "run-json", stdout)
	code, stdout, stderr = invoke(t, fails(sbxerr.New(sbxerr.ImageNotFound, "a.b", "no image %q", "x")), "", "run", "-o", "json", "--", "x")
	if code != cli.ExitRuntime || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	golden(t, "run-json-error", stdout)
}

func TestDetach(t *testing.T) {
	f := &servertest.Fake{OnStart: func(_ context.Context, req plan.Request) (runtime.Info, error) {
		return runtime.Info{ID: "id", Name: req.Create.Name}, nil
	}}
	if code, stdout, _ := invoke(t, f, "", "run", "-d", "--name", "n", "--", "x"); code != 0 || stdout != "id\n" {
		t.Errorf("%d %q", code, stdout)
	}
	_, stdout, _ := invoke(t, f, "", "run", "-d", "--json", "--name", "n", "--", "x")
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got["sandbox_id"] != "id" || got["sandbox_name"] != "n" {
		t.Errorf("%q %v", stdout, err)
	}
	if code, _, stderr := invoke(t, &servertest.Fake{}, "", "run", "-d", "--", "x"); code != cli.ExitRuntime || !strings.Contains(stderr, "SBX-107") {
		t.Errorf("%d %q", code, stderr)
	}
}

func TestStdin(t *testing.T) {
	input := servertest.NewInput()
	echo := &servertest.Fake{OnInput: input.Send, OnRun: func(_ context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec"})
		if !req.Exec.Stdin {
			_, err := io.WriteString(rio.Stdout, "nothing")
			return &runtime.Result{}, err
		}
		_, err := io.Copy(rio.Stdout, input)
		return &runtime.Result{}, err
	}}
	if _, stdout, _ := invoke(t, echo, "in\x00put", "run", "-i", "--", "cat"); stdout != "in\x00put" {
		t.Errorf("with -i: %q", stdout)
	}
	if _, stdout, _ := invoke(t, echo, "input", "run", "--", "cat"); stdout != "nothing" {
		t.Errorf("without -i: %q", stdout)
	}
}

// TestOutputStreams checks that output is passed on before the command ends.
func TestOutputStreams(t *testing.T) {
	seen := make(chan struct{})
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		if _, err := io.WriteString(rio.Stdout, "first\n"); err != nil {
			return nil, err
		}
		select {
		case <-seen:
			return &runtime.Result{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	cmd := command(t, f, "run", "--", "x")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "first\n" {
		t.Errorf("got %q, %v", line, err)
	}
	close(seen)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// waiting is a daemon whose command waits for its caller to go or a signal.
func waiting(running chan<- struct{}, onSignal func(syscall.Signal) *runtime.Result, gone chan<- struct{}) *servertest.Fake {
	signals := make(chan syscall.Signal, 16)
	wait := func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec"})
		if _, err := io.WriteString(rio.Stdout, "running\n"); err != nil {
			return nil, err
		}
		if running != nil {
			close(running)
		}
		for {
			select {
			case s := <-signals:
				if r := onSignal(s); r != nil {
					return r, nil
				}
			case <-ctx.Done():
				close(gone)
				return nil, ctx.Err()
			}
		}
	}
	return &servertest.Fake{OnRun: wait, OnSignal: func(ref, exec string, req runtime.SignalRequest) error {
		if ref != "id" || exec != "exec" || req.All {
			return fmt.Errorf("%v for %q %q", req, ref, exec)
		}
		signals <- req.Signal
		return nil
	}}
}

// signalled runs caisson in this process and sends it signals, each when the
// one before has arrived at the command, the first when its output has come.
func signalled(t *testing.T, grace time.Duration, ends syscall.Signal, send ...syscall.Signal) (code int, stderr string, heard []syscall.Signal, gone chan struct{}) {
	t.Helper()
	arrived := make(chan syscall.Signal, 16)
	gone = make(chan struct{})
	f := waiting(nil, func(s syscall.Signal) *runtime.Result {
		arrived <- s
		if s == ends {
			return &runtime.Result{ExitCode: 128 + int(s), Signal: int(s), Reason: runtime.ReasonSignaled}
		}
		return nil
	}, gone)
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	out, outW := io.Pipe()
	var errOut bytes.Buffer
	a := cli.NewApp(whole, nil, outW, &errOut)
	a.Grace = grace
	exit := make(chan int, 1)
	go func() { exit <- a.Run(t.Context(), []string{"run", "--", "sleep"}) }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "running\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	for i, s := range send {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		if i+1 < len(send) || s == ends {
			heard = append(heard, await(t, s.String(), arrived))
		}
	}
	return await(t, "exit", exit), errOut.String(), heard, gone
}

func TestSignalEndsTheCommand(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		code, stderr, heard, _ := signalled(t, time.Minute, s, s)
		if code != 128+int(s) || stderr != "" || len(heard) != 1 || heard[0] != s {
			t.Errorf("%v: exit code %d, stderr %q, heard %v", s, code, stderr, heard)
		}
	}
}

// TestSignalsThatDoNotEnd checks that the command may handle HUP and USR1 as
// often as it likes.
func TestSignalsThatDoNotEnd(t *testing.T) {
	code, _, heard, _ := signalled(t, time.Minute, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM)
	if code != 143 || len(heard) != 4 {
		t.Errorf("exit code %d, heard %v", code, heard)
	}
}

func TestSecondSignalEndsTheSandbox(t *testing.T) {
	code, stderr, heard, gone := signalled(t, time.Minute, 0, syscall.SIGINT, syscall.SIGTERM)
	await(t, "end of the sandbox", gone)
	if code != 128+int(syscall.SIGTERM) || len(heard) != 1 || !strings.Contains(stderr, "SIGTERM came a second time") || !strings.Contains(stderr, "SBX-002") {
		t.Errorf("exit code %d, heard %v, stderr %q", code, heard, stderr)
	}
}

// leaving is a daemon whose command writes without end and hears no signal but KILL,
// to which onKill answers, and what came to it.
func leaving(onKill error) (f *servertest.Fake, killed chan struct{}) {
	killed = make(chan struct{}, 1)
	return &servertest.Fake{
		OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id"})
			for {
				if _, err := rio.Stdout.Write(make([]byte, 64<<10)); err != nil {
					return nil, err
				}
			}
		},
		OnSignal: func(ref, exec string, req runtime.SignalRequest) error {
			if req.Signal == syscall.SIGKILL && req.All && ref == "id" && exec == "exec" {
				killed <- struct{}{}
				return onKill
			}
			return nil
		},
	}, killed
}

// twice runs caisson exec in this process, with such an output, and interrupts it twice.
func twice(t *testing.T, f *servertest.Fake, stdout io.Writer, written <-chan struct{}, flags ...string) (code int, stderr string) {
	t.Helper()
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	var errOut bytes.Buffer
	a := cli.NewApp(whole, nil, stdout, &errOut)
	a.Stuck = 100 * time.Millisecond
	exit := make(chan int, 1)
	a.Exit = func(code int) {
		exit <- code
		select {} // the real one does not return
	}
	go func() {
		exit <- a.Run(t.Context(), slices.Concat([]string{"exec"}, flags, []string{"id", "--", "yes"}))
	}()
	await(t, "output", written)
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond) // a second one at once is the same
	}
	return await(t, "exit", exit), errOut.String()
}

// tellingWriter closes begun with its first Write, and blocks where it is to.
type tellingWriter struct {
	begun  chan struct{}
	once   sync.Once
	blocks chan struct{}
}

func (w *tellingWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	if w.blocks != nil {
		<-w.blocks
	}
	return len(p), nil
}

// TestStuckOutput: a client whose output nobody takes ends with its second signal, and
// kills the command first.
func TestStuckOutput(t *testing.T) {
	f, killed := leaving(nil)
	w := &tellingWriter{begun: make(chan struct{}), blocks: make(chan struct{})}
	defer close(w.blocks)
	code, stderr := twice(t, f, w, w.begun)
	if code != 130 || !strings.Contains(stderr, "SIGINT came a second time: the command is killed [SBX-002]") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	await(t, "kill", killed)
}

// TestStuckLines: it does not wait either to tell that in an output which nobody takes.
func TestStuckLines(t *testing.T) {
	f, killed := leaving(nil)
	w := &tellingWriter{begun: make(chan struct{}), blocks: make(chan struct{})}
	defer close(w.blocks)
	if code, _ := twice(t, f, w, w.begun, "--stream", "jsonl"); code != 130 {
		t.Errorf("exit code %d", code)
	}
	await(t, "kill", killed)
}

// TestLeavingAPausedSandbox: what cannot be killed is not said to be.
func TestLeavingAPausedSandbox(t *testing.T) {
	f, killed := leaving(sbxerr.New(sbxerr.Paused, "a.b", "sandbox id is paused"))
	w := &tellingWriter{begun: make(chan struct{})}
	code, stderr := twice(t, f, w, w.begun)
	if code != 130 || !strings.Contains(stderr, "its sandbox is paused, so the command is ended when it goes on") || strings.Contains(stderr, "killed") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	await(t, "kill", killed)
}

func TestGraceEndsTheSandbox(t *testing.T) {
	code, stderr, _, gone := signalled(t, 50*time.Millisecond, 0, syscall.SIGINT)
	await(t, "end of the sandbox", gone)
	if code != 128+int(syscall.SIGINT) || !strings.Contains(stderr, "SIGINT did not end the command within 50ms") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// TestSignalBeforeTheCommand has a Ctrl-C while the sandbox is being made.
func TestSignalBeforeTheCommand(t *testing.T) {
	making, gone := make(chan struct{}), make(chan struct{})
	f := &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, _ runtime.IO) (*runtime.Result, error) {
		close(making)
		<-ctx.Done()
		close(gone)
		return nil, ctx.Err()
	}}
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	var out, errOut bytes.Buffer
	exit := make(chan int, 1)
	go func() { exit <- whole.Run(t.Context(), []string{"run", "--json", "--", "x"}, nil, &out, &errOut) }()
	await(t, "run", making)
	hungUp := make(chan os.Signal, 1)
	signal.Notify(hungUp, syscall.SIGHUP)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // nobody's
		t.Fatal(err)
	}
	await(t, "SIGHUP", hungUp) // one that came after the next would end the test
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code := await(t, "exit", exit)
	await(t, "end of the sandbox", gone)
	if code != 130 || !strings.Contains(out.String(), "SBX-002") || errOut.Len() > 0 {
		t.Errorf("exit code %d, %q %q", code, &out, &errOut)
	}
}

// TestClientKilled checks that a client that dies takes its run with it.
func TestClientKilled(t *testing.T) {
	running, gone := make(chan struct{}), make(chan struct{})
	cmd := command(t, waiting(running, func(syscall.Signal) *runtime.Result { return nil }, gone), "run", "-i", "--", "x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "run", running)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "end of the sandbox", gone)
	_ = cmd.Wait() // killed
}

// yes is a daemon whose command writes until its caller goes.
func yes(gone chan<- struct{}) *servertest.Fake {
	return &servertest.Fake{OnRun: func(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{}, runtime.ExecInfo{})
		for ctx.Err() == nil {
			if _, err := io.WriteString(rio.Stdout, "y\n"); err != nil {
				break
			}
		}
		<-ctx.Done()
		close(gone)
		return nil, ctx.Err()
	}}
}

// TestBrokenPipe is caisson run -- yes | head -1.
func TestBrokenPipe(t *testing.T) {
	gone := make(chan struct{})
	cmd := command(t, yes(gone), "run", "--", "yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	out.Close()
	await(t, "end of the sandbox", gone)
	_ = cmd.Wait() // what it ended with is looked at below
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGPIPE || errOut.Len() > 0 {
		t.Errorf("ended with %v, stderr %q; want the broken pipe, quietly", cmd.ProcessState, &errOut)
	}
}

// TestFullDisk is caisson run -- yes > /dev/full.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("needs /dev/full: %v", err)
	}
	defer full.Close()
	gone := make(chan struct{})
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, yes(gone)))
	var errOut bytes.Buffer
	code := whole.Run(t.Context(), []string{"run", "--", "yes"}, nil, full, &errOut)
	await(t, "end of the sandbox", gone)
	if code != cli.ExitRuntime || !strings.Contains(errOut.String(), "no space left") || !strings.Contains(errOut.String(), "SBX-804") {
		t.Errorf("exit code %d, stderr %q", code, &errOut)
	}
	errOut.Reset()
	if code := whole.Run(t.Context(), []string{"version"}, nil, full, &errOut); code != cli.ExitRuntime || !strings.Contains(errOut.String(), "SBX-804") {
		t.Errorf("version: exit code %d, stderr %q", code, &errOut)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestBrokenPipeOfOthers(t *testing.T) {
	var errOut bytes.Buffer
	code := whole.Run(t.Context(), []string{"version"}, nil, brokenPipe{}, &errOut)
	if code != 128+int(syscall.SIGPIPE) || errOut.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, &errOut)
	}
}

// TestOpenStdinDoesNotHold checks that an exit waits for no input.
func TestOpenStdinDoesNotHold(t *testing.T) {
	cmd := command(t, ends(runtime.Result{ExitCode: 5}), "run", "-i", "--", "x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	_ = await(t, "exit", ended) // the code says how
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}

// run takes what create and exec take, where it makes sense for one command.
func TestRunTakesAScriptAndLimits(t *testing.T) {
	var got plan.Request
	f := &servertest.Fake{OnRun: func(_ context.Context, r plan.Request, _ runtime.IO) (*runtime.Result, error) {
		got = r
		return &runtime.Result{}, nil
	}}
	code, _, stderr := invoke(t, f, "echo $HOME\n", "run", "--shell", "--ulimit", "nofile=64:128", "--ttl", "2h")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	want := []plan.Rlimit{{Name: "RLIMIT_NOFILE", Soft: 64, Hard: 128}}
	if e := got.Exec; e.Shell != "echo $HOME\n" || len(e.Args) > 0 || !slices.Equal(e.Rlimits, want) || got.Create.TTL == nil || *got.Create.TTL != 2*time.Hour {
		t.Errorf("got %+v", got)
	}
}
