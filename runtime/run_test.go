package runtime

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// ended is what a result says of how a command ended.
type ended struct {
	code, signal int
	reason       Reason
	source       string
	timedOut     bool
	oom          bool
}

func endedOf(r *Result) ended {
	return ended{r.ExitCode, r.Signal, r.Reason, r.Source, r.TimedOut, r.OOMKilled}
}

const oomKill = "max 9\noom 1\noom_kill 1\n"

// TestHowCommandsEnd runs commands to every kind of end.
func TestHowCommandsEnd(t *testing.T) {
	soonOver, never := 20*time.Millisecond, time.Hour
	for _, tt := range []struct {
		name    string
		script  []string
		timeout time.Duration
		grace   time.Duration
		events  string // what the kernel counts of memory
		cancel  bool
		expire  bool
		signal  syscall.Signal
		want    ended
	}{
		{name: "success", script: []string{"exit:0"}, want: ended{reason: ReasonExited, source: "command"}},
		{name: "own code", script: []string{"exit:255"}, want: ended{code: 255, reason: ReasonExited, source: "command"}},
		{name: "within its time", script: []string{"exit:3"}, timeout: never, want: ended{code: 3, reason: ReasonExited, source: "command"}},
		{name: "signal", script: []string{"signal:11"}, want: ended{code: 139, signal: 11, reason: ReasonSignaled, source: "command"}},
		{name: "the caller's signal", script: []string{"await:2", "signal:2"}, signal: 2, want: ended{code: 130, signal: 2, reason: ReasonSignaled, source: "command"}},
		{name: "the caller's signal, caught", script: []string{"await:2", "exit:1"}, signal: 2, want: ended{code: 1, reason: ReasonExited, source: "command"}},
		{name: "timeout, TERM honoured", script: []string{"await:15", "exit:5"}, timeout: soonOver, grace: never, want: ended{code: 124, reason: ReasonTimeout, source: "command", timedOut: true}},
		{name: "timeout, TERM kills", script: []string{"await:15", "signal:15"}, timeout: soonOver, grace: never, want: ended{code: 124, signal: 15, reason: ReasonTimeout, source: "command", timedOut: true}},
		{name: "timeout, TERM ignored", script: []string{"hang"}, timeout: soonOver, grace: soonOver, want: ended{code: 124, signal: 9, reason: ReasonTimeout, source: "command", timedOut: true}},
		{name: "cancelled", script: []string{"hang"}, cancel: true, want: ended{code: 137, signal: 9, reason: ReasonCanceled, source: "runtime"}},
		{name: "lost", script: []string{"die:0"}, want: ended{code: 137, signal: 9, reason: ReasonLost, source: "runtime"}},
		{name: "out of memory", script: []string{"signal:9"}, events: oomKill, want: ended{code: 137, signal: 9, reason: ReasonOOM, source: "command", oom: true}},
		{name: "out of memory below a shell", script: []string{"exit:137"}, events: oomKill, want: ended{code: 137, reason: ReasonOOM, source: "command", oom: true}},
		{name: "out of memory with PID 1", script: []string{"await:10", "die:0"}, events: oomKill, want: ended{code: 137, signal: 9, reason: ReasonOOM, source: "command", oom: true}},
		{name: "a child out of memory", script: []string{"exit:1"}, events: oomKill, want: ended{code: 1, reason: ReasonExited, source: "command", oom: true}},
		{name: "137 of its own", script: []string{"exit:137"}, want: ended{code: 137, reason: ReasonExited, source: "command"}},
		{name: "KILL of its own", script: []string{"signal:9"}, want: ended{code: 137, signal: 9, reason: ReasonSignaled, source: "command"}},
		{name: "timeout out of memory", script: []string{"hang"}, timeout: soonOver, grace: soonOver, events: oomKill, want: ended{code: 124, signal: 9, reason: ReasonTimeout, source: "command", timedOut: true, oom: true}},
		{name: "cancelled out of memory", script: []string{"hang"}, cancel: true, events: oomKill, want: ended{code: 137, signal: 9, reason: ReasonCanceled, source: "runtime", oom: true}},
		{name: "expired out of memory", script: []string{"hang"}, expire: true, events: oomKill, want: ended{code: 137, signal: 9, reason: ReasonExpired, source: "runtime", oom: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.opts.StopGrace = tt.grace
			ctx, cancel := context.WithCancel(callerContext(t))
			defer cancel()
			r := request(tt.script...)
			if tt.timeout != 0 {
				r.Exec.Timeout = &tt.timeout
			}
			waits := tt.events != "" || (tt.timeout == 0 && tt.signal == 0) // no signal must come while it waits to be poked
			if waits {
				r.Exec.Args = append([]string{"await:10"}, tt.script...)
			}
			result, err := f.Run(ctx, r, IO{Started: func(i Info, e ExecInfo) {
				if waits && (i.State != StateRunning || i.PID == 0) {
					t.Errorf("started as %+v", i)
				}
				if tt.events != "" {
					f.engine.count(t, i.ID, "memory.events", tt.events)
					f.engine.poke(t, i.ID) // some of these wait once more
				}
				if tt.cancel {
					cancel()
				}
				if tt.expire {
					f.mustFind(t, i.ID).end(ErrExpired)
				}
				if tt.signal != 0 {
					if err := f.SignalExec(ctx, i.ID, e.ID, SignalRequest{Signal: tt.signal}); err != nil {
						t.Error(err)
					}
				}
				f.engine.poke(t, i.ID)
			}})
			if err != nil {
				t.Fatal(err)
			}
			if got := endedOf(result); got != tt.want {
				t.Errorf("ended %+v,\nwant  %+v", got, tt.want)
			}
		})
	}
}

func TestResultHoldsWhatWasCounted(t *testing.T) {
	f := newFixture(t)
	limit := int64(4)
	result, err := f.Run(callerContext(t), plan.Request{Exec: plan.ExecRequest{Args: []string{"await:10", "out:123456", "err:789", "exit:0"}, OutputLimit: &limit}}, IO{
		Started: func(i Info, _ ExecInfo) {
			f.engine.count(t, i.ID, "pids.events", "max 3\n")
			f.engine.count(t, i.ID, "cpu.stat", "usage_usec 3000\nnr_throttled 7\n") // what the sandbox took before is not the command's
			f.engine.poke(t, i.ID)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.StdoutBytes != 6 || result.StderrBytes != 3 || !result.Truncated {
		t.Errorf("output: %+v", result)
	}
	if result.IOReadBytes == nil || *result.IOReadBytes != 10 || result.IOWriteBytes == nil || *result.IOWriteBytes != 20 {
		t.Errorf("I/O %v, %v; want what io.stat has", result.IOReadBytes, result.IOWriteBytes)
	}
	if result.CPU != 1500*time.Microsecond || result.PeakMemoryBytes != 4096 || result.ThrottledPeriods != 4 || result.MaxRSSBytes != 7<<10 {
		t.Errorf("usage: %+v", result)
	}
	if result.Network != "none" || result.SandboxID == "" || result.Duration <= 0 {
		t.Errorf("result: %+v", result)
	}
	names := []string{}
	for _, s := range result.Stages {
		names = append(names, s.Name)
	}
	var want []string
	for _, s := range f.Manager.stages {
		want = append(want, s.name)
	}
	if want = append(want, "exec"); !slices.Equal(names, want) {
		t.Errorf("stages %q, want %q", names, want)
	}
}

func TestResultSaysWhatIsNotKnown(t *testing.T) {
	f := newFixture(t)
	result, err := f.Run(callerContext(t), request("await:10", "out:x", "exit:0"), IO{Started: func(i Info, _ ExecInfo) {
		for _, file := range []string{"memory.events", "pids.current"} {
			if err := os.Remove(f.engine.cgroups + "/" + i.ID + "/" + file); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(f.paths.stdout(i.ID, 1), nil, 0o600); err != nil { // the store cannot be made
			t.Error(err)
		}
		f.engine.poke(t, i.ID)
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(result.Warnings, "\n")
	for _, want := range []string{"usage is not known: ", "limit violations are not known: ", "output of stdout was not kept: "} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings %q lack %q", all, want)
		}
	}
	if result.StdoutBytes != 1 || !result.Truncated || result.OOMKilled {
		t.Errorf("result %+v", result)
	}
}

func TestRunStreams(t *testing.T) {
	f := newFixture(t)
	var out, errOut bytes.Buffer
	r := plan.Request{Exec: plan.ExecRequest{Args: []string{"cat", "err:done", "exit:0"}}}
	result, err := f.Run(callerContext(t), r, IO{Stdin: []byte("through"), Stdout: &out, Stderr: &errOut})
	if err != nil || out.String() != "through" || errOut.String() != "done" || result.ExitCode != 0 {
		t.Errorf("stdout %q, stderr %q, %+v, %v", out.String(), errOut.String(), result, err)
	}
	out.Reset()
	if _, err := f.Run(callerContext(t), request("cat", "exit:0"), IO{Stdout: &out}); err != nil || out.Len() > 0 {
		t.Errorf("without input: %q, %v", out.String(), err)
	}
}

// TestRunPassesOnWhatThePlanSays looks from inside.
func TestRunPassesOnWhatThePlanSays(t *testing.T) {
	f := newFixture(t)
	var out bytes.Buffer
	_, err := f.Run(callerContext(t), plan.Request{Create: plan.CreateRequest{User: "7:8"}, Exec: plan.ExecRequest{Args: []string{"who", "out:\n", "env", "exit:0"}, Env: []string{"A=1"}, Cwd: "/srv"}}, IO{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if lines[0] != "7:8 in /srv" || !slices.Contains(lines, "PATH="+plan.DefaultPath) || lines[len(lines)-1] != "A=1" {
		t.Errorf("inside: %q", lines)
	}
}

// TestInputThatNobodyReads: the command takes little of it, and nothing of the run
// waits for the rest.
func TestInputThatNobodyReads(t *testing.T) {
	f := newFixture(t)
	before := descriptors()["pipe"]
	result, err := f.Run(callerContext(t), request("exit:0"), IO{Stdin: make([]byte, 1<<20)})
	if err != nil || result.ExitCode != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if err := f.drain(callerContext(t)); err != nil {
		t.Error(err)
	}
	if after := descriptors()["pipe"]; after > before {
		t.Errorf("%d pipes are open, %d before", after, before)
	}
}

// TestKilledSandboxHasNoWordLeft has a PID 1 that survives its KILL, as one
// that hangs in the kernel does. It must not keep its caller waiting.
func TestKilledSandboxHasNoWordLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	decoy := exec.Command("/proc/self/exe")
	decoy.Env = []string{fakeInitEnv + "=" + t.TempDir()}
	if _, err := decoy.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := decoy.Start(); err != nil {
		t.Fatal(err)
	}
	f.replace(stage{name: "posture", create: func(_ context.Context, s *sandbox) error {
		p, err := openProcess(decoy.Process.Pid)
		err = errors.Join(err, s.process.close())
		s.update(func() { s.process = p })
		return err
	}})
	ctx, cancel := context.WithCancel(callerContext(t))
	done := f.runInBackground(ctx, request("hang"), IO{Started: func(Info, ExecInfo) { cancel() }})
	if r := within(t, "the end of the run", done); r.err != nil || r.result.Reason != ReasonCanceled || r.result.Cause != CauseCaller {
		t.Errorf("%+v, %v", r.result, r.err)
	}
	_ = decoy.Wait() // killed
}

// brokenWriter is a caller that reads no more.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errInjected }

func TestCallerThatStopsReading(t *testing.T) {
	f := newFixture(t)
	result, err := f.Run(callerContext(t), request("out:x", "exit:0"), IO{Stdout: brokenWriter{}})
	if err != nil || result.StdoutBytes != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestCommandThatDoesNotStart(t *testing.T) {
	f := newFixture(t)
	_, err := f.Run(callerContext(t), request("fail:2"), IO{Stdin: []byte("x")})
	errtest.Want(t, err, sbxerr.CommandAbsent, `look up "fail:2"`)
	_, err = f.Start(callerContext(t), request("fail:13"))
	errtest.Want(t, err, sbxerr.NotExecutable)
	f.wantNothingLeft(t)
}

// TestStartIsTheCallersUntilItReturns: a caller that leaves before it knows of
// the sandbox gets none.
func TestStartIsTheCallersUntilItReturns(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(callerContext(t))
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error {
		cancel(errInjected)
		return nil
	}})
	_, err := f.Start(ctx, request("unanswered"))
	if !errors.Is(err, errInjected) {
		t.Errorf("start: %v", err)
	}
	errtest.Want(t, err, sbxerr.Canceled)
	f.wantNothingLeft(t)
}

func TestStartOutlivesItsCaller(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(callerContext(t))
	info, err := f.Start(ctx, request("out:kept", "await:10", "exit:6"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	f.engine.poke(t, info.ID)
	info = f.over(t, info.ID)
	if info.State != StateExited || info.Result.ExitCode != 6 || info.Result.Reason != ReasonExited {
		t.Errorf("%+v, %+v", info, info.Result)
	}
	if ids, _ := f.engine.Containers(callerContext(t)); len(ids) > 0 {
		t.Errorf("an exited sandbox keeps %v", ids)
	}
	var out bytes.Buffer
	if err := f.Logs(callerContext(t), info.ID, LogOptions{}, &out, &out); err != nil || out.String() != "kept" {
		t.Errorf("logs %q, %v", out.String(), err)
	}
}

// TestStartInAStoppedSandbox: a run whose sandbox ends before its command starts is
// told so, and nothing stays, also where the sandbox ended as one that is kept.
func TestStartInAStoppedSandbox(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	ended := make(chan error, 1)
	go func() { _, err := f.Start(ctx, request("unanswered")); ended <- err }()
	var s *sandbox
	eventually(t, "the command is being started", func() bool {
		all := f.all()
		if len(all) == 1 && all[0].info().Execs == 1 {
			s = all[0]
		}
		return s != nil
	})
	s.end(ErrStopped)
	errtest.Want(t, within(t, "the refusal", ended), sbxerr.State, "the sandbox was stopped")
	f.wantNothingLeft(t)
}
