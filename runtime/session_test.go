package runtime

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
)

// session makes a sandbox for many commands.
func (f *fixture) session(t testing.TB, r plan.CreateRequest) Info {
	t.Helper()
	info, err := f.Create(callerContext(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func script(steps ...string) plan.ExecRequest { return plan.ExecRequest{Args: steps} }

func TestSession(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	info := f.session(t, plan.CreateRequest{Name: "s", Env: []string{"A=1"}})
	if info.State != StateRunning || info.IdleSince.IsZero() || info.Name != "s" {
		t.Errorf("made %+v", info)
	}
	var out, errOut bytes.Buffer
	r, err := f.Exec(ctx, "s", script("out:hello", "err:oh", "exit:3"), IO{Stdout: &out, Stderr: &errOut})
	if err != nil || r.ExitCode != 3 || r.ExecID != "1" || out.String() != "hello" || errOut.String() != "oh" || r.StdoutBytes != 5 {
		t.Fatalf("%+v, %v: %q, %q", r, err, &out, &errOut)
	}
	e, err := f.StartExec(ctx, "s", script("out:one", "await:10", "out:two", "exit:0"))
	if err != nil || e.ID != "2" || e.State != ExecRunning {
		t.Fatalf("%+v, %v", e, err)
	}
	if info, _ := f.Inspect(ctx, "s"); info.Execs != 1 || !info.IdleSince.IsZero() {
		t.Errorf("while a command runs: %+v", info.Info)
	}
	if err := f.SignalExec(ctx, "s", "2", SignalRequest{Signal: poked}); err != nil {
		t.Error(err)
	}
	if e, err = f.WaitExec(ctx, "s", "2"); err != nil || e.State != ExecExited || e.StdoutBytes != 6 || e.Result.ExitCode != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	list, err := f.Execs(ctx, "s")
	if err != nil || len(list) != 2 || list[0].ID != "1" || list[1].Args[0] != "out:one" {
		t.Errorf("listed %+v, %v", list, err)
	}
	out.Reset()
	if err := f.Logs(ctx, "s", LogOptions{Exec: "2", StdoutOffset: 3}, &out, nil); err != nil || out.String() != "two" {
		t.Errorf("logs %q, %v", &out, err)
	}
	out.Reset()
	if r, err := f.Attach(ctx, "s", "1", AttachOptions{StdoutOffset: 2}, IO{Stdout: &out}); err != nil || r.ExitCode != 3 || out.String() != "llo" {
		t.Errorf("attached to what ended: %q, %+v, %v", &out, r, err)
	}
	errtest.Want(t, f.SignalExec(ctx, "s", "2", SignalRequest{Signal: poked}), sbxerr.State, "has ended")
	_, err = f.WaitExec(ctx, "s", "7")
	errtest.Want(t, err, sbxerr.ExecNotFound, `no command "7"`)
	_, err = f.Attach(ctx, "s", "1", AttachOptions{StdoutOffset: 6}, IO{})
	errtest.Want(t, err, sbxerr.Config, "offset 6 of stdout: 5 bytes were written")
	err = f.Logs(ctx, "s", LogOptions{}, nil, nil)
	errtest.Want(t, err, sbxerr.ExecNotFound, "name one")
}

func TestStop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := callerContext(t)
	f.session(t, plan.CreateRequest{Name: "s"})
	asked, err := f.StartExec(ctx, "s", script("await:15", "out:bye", "exit:5"))
	if err != nil {
		t.Fatal(err)
	}
	deaf, err := f.StartExec(ctx, "s", script("hang"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := f.StartExec(ctx, "s", script("await:15", "signal:15")) // as one that does nothing about it
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Second // so that only the deaf one needs it
	info, err := f.Stop(ctx, "s", &grace)
	if err != nil || info.State != StateExited || info.ExitedAt.IsZero() {
		t.Errorf("stopped %+v, %v", info, err)
	}
	if e, err := f.WaitExec(ctx, "s", plain.ID); err != nil || e.Result.ExitCode != 143 || e.Result.Reason != ReasonCanceled || e.Result.Cause != CauseStopped || e.Result.Source != "runtime" {
		t.Errorf("a command that TERM ends: %+v, %v", e.Result, err) // it did not crash
	}
	if e, err := f.WaitExec(ctx, "s", asked.ID); err != nil || e.Result.ExitCode != 5 || e.Result.Reason != ReasonExited || e.Result.Cause != "" {
		t.Errorf("a command that ends when asked: %+v, %v", e.Result, err)
	}
	if e, err := f.WaitExec(ctx, "s", deaf.ID); err != nil || e.Result.Reason != ReasonCanceled || e.Result.Cause != CauseStopped || e.Result.Signal != int(syscall.SIGKILL) {
		t.Errorf("a command that does not: %+v, %v", e.Result, err)
	}
	var out strings.Builder
	if err := f.Logs(ctx, "s", LogOptions{Exec: asked.ID}, &out, nil); err != nil || out.String() != "bye" {
		t.Errorf("what it wrote: %q, %v", &out, err)
	}
	_, err = f.Exec(ctx, "s", script("exit:0"), IO{})
	errtest.Want(t, err, sbxerr.State, "sandbox s is exited")
	if _, err := f.Stop(ctx, "s", nil); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
	if _, err := f.Remove(ctx, "s", false); err != nil {
		t.Error(err)
	}
	f.wantNothingLeft(t)
}

// TestStopsJoin: of the stops of a sandbox only that with the least grace goes on.
func TestStopsJoin(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id := f.commandIn(t, false, "hang")
	s := f.sandboxes[id]
	over := make(chan struct{}, 3)
	begin := func(grace time.Duration) { go func() { f.stop(ctx, s, grace); over <- struct{}{} }() }
	leads := func() moment { return s.kept().StopBy }
	begin(2 * time.Hour)
	eventually(t, "the next daemon would go on with it", func() bool {
		r, err := readRecord(f.paths.record(id), f.boot)
		return err == nil && r.StopBy != 0 && r.StopBy == leads()
	})
	first := leads()
	begin(3 * time.Hour)
	within(t, "the end of a stop with more grace", over)
	if leads() != first {
		t.Error("a stop with more grace is waited for")
	}
	begin(time.Hour)
	within(t, "the end of the first stop", over)
	if s.endCause() != nil || leads() >= first {
		t.Errorf("with an hour left it ends because %v", s.endCause())
	}
	if _, err := f.Stop(ctx, id, new(time.Duration(0))); err != nil || !errors.Is(s.endCause(), ErrStopped) {
		t.Errorf("stopped at once: %v, %v", s.endCause(), err)
	}
	within(t, "the end of the last stop", over)
}

// TestStoppingTakesNothing: from when a sandbox is to stop, nothing begins in it,
// while what runs there has its grace.
func TestStoppingTakesNothing(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id := f.commandIn(t, false, "await:15", "out:asked", "await:10", "exit:0") // asked to end, it takes its time
	stopped := make(chan error, 1)
	go func() {
		grace := time.Hour
		_, err := f.Stop(ctx, id, &grace)
		stopped <- err
	}()
	s, err := f.find(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(soon); s.info().State == StateRunning; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not stop")
		}
	}
	for what, call := range map[string]func() error{
		"exec":   func() error { _, err := f.Exec(ctx, id, script("exit:0"), IO{}); return err },
		"start":  func() error { _, err := f.StartExec(ctx, id, script("exit:0")); return err },
		"pause":  func() error { _, err := f.Pause(ctx, id); return err },
		"update": func() error { _, err := f.Update(ctx, id, UpdateRequest{}); return err },
	} {
		if err := call(); sbxerr.Of(err) != sbxerr.State || !strings.Contains(err.Error(), "sandbox "+id+" is stopping") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := f.Execs(ctx, id); err != nil || len(list) != 1 || list[0].State != ExecRunning {
		t.Errorf("commands %+v, %v", list, err)
	}
	if list, err := f.List(ctx); err != nil || len(list) != 1 || list[0].State != StateStopping {
		t.Errorf("listed %+v, %v", list, err)
	}
	if entries, err := os.ReadDir(f.paths.output(id)); err != nil || len(entries) > 2 {
		t.Errorf("kept of what never began: %v, %v", entries, err)
	}
	eventually(t, "its command is asked to end", func() bool { return s.executions()[0].info().StdoutBytes > 0 })
	f.engine.poke(t, id)
	if err := within(t, "the end", stopped); err != nil {
		t.Error(err)
	}
}

func TestEnsureAndKeys(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	r := plan.CreateRequest{Name: "s", Ensure: true, Labels: map[string]string{"a": "b"}}
	first := f.session(t, r)
	if again := f.session(t, r); again.ID != first.ID {
		t.Error("another one with the same settings")
	}
	r.TTL = new(time.Duration(0)) // never, as without a word
	if again := f.session(t, r); again.ID != first.ID || !again.ExpiresAt.IsZero() {
		t.Errorf("without end: %+v", again)
	}
	r.TTL = nil
	if _, err := f.Update(ctx, "s", UpdateRequest{IdleTimeout: new(time.Hour), Labels: map[string]string{"a": "c"}}); err != nil {
		t.Fatal(err)
	}
	if again := f.session(t, r); again.ID != first.ID || again.Labels["a"] != "c" || again.IdleTimeout != time.Hour {
		t.Errorf("after an update: %+v", again)
	}
	r.Labels = map[string]string{"a": "c"} // what it has by now
	_, err := f.Create(ctx, r)
	errtest.Want(t, err, sbxerr.Exists, "other settings: labels")
	r.IdleTimeout, r.Limits = new(time.Hour), &caissonv1.Limits{MemoryBytes: new(int64(64 << 20)), Pids: new(int64(64))}
	_, err = f.Create(ctx, r)
	errtest.Want(t, err, sbxerr.Exists, "other settings: limits.memory_bytes, limits.pids, labels, idle_timeout")
	_, err = f.Create(ctx, plan.CreateRequest{Name: "s"})
	errtest.Want(t, err, sbxerr.Exists, `the name "s"`)

	keyed := plan.CreateRequest{Key: "k"}
	made := make(chan Info, 3)
	for range cap(made) { // at once: one of them makes it
		go func() {
			info, err := f.Create(ctx, keyed)
			if err != nil {
				t.Error(err)
			}
			made <- info
		}()
	}
	id := within(t, "a sandbox", made).ID
	for range cap(made) - 1 {
		if other := within(t, "a sandbox", made); other.ID != id {
			t.Errorf("a second sandbox %s for the same key", other.ID)
		}
	}
}

// TestEnsureHeals: a sandbox that has ended is replaced, whatever its settings were, and
// the answer says so. One that holds the result of its command is not.
func TestEnsureHeals(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	first := f.session(t, plan.CreateRequest{Name: "s"})
	if _, err := f.Stop(ctx, "s", nil); err != nil {
		t.Fatal(err)
	}
	r := plan.CreateRequest{Name: "s", Ensure: true, Labels: map[string]string{"a": "b"}}
	second := f.session(t, r)
	if second.ID == first.ID || second.Replaced != first.ID || second.State != StateRunning {
		t.Errorf("%+v", second)
	}
	if again := f.session(t, r); again.ID != second.ID || again.Replaced != "" {
		t.Errorf("the second time: %+v", again)
	}
	_, err := f.Inspect(ctx, first.ID)
	errtest.Want(t, err, sbxerr.NotFound)

	run := request("exit:3")
	run.Create.Name = "job"
	if _, err := f.Start(ctx, run); err != nil {
		t.Fatal(err)
	}
	f.over(t, "job")
	_, err = f.Create(ctx, plan.CreateRequest{Name: "job", Ensure: true})
	errtest.Want(t, err, sbxerr.State, "remove it first")
	if sbxerr.Retryable(err) {
		t.Error("it is said that a retry helps")
	}
}

// TestReplace: a live one goes, unless the request is refused.
func TestReplace(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	first := f.session(t, plan.CreateRequest{Name: "s", Replace: true})
	if first.Replaced != "" {
		t.Errorf("nothing was there: %+v", first)
	}
	for _, refused := range []struct {
		r    plan.CreateRequest
		code sbxerr.Code
	}{
		{plan.CreateRequest{Network: "nome"}, sbxerr.NetworkMode},
		{plan.CreateRequest{Workspace: &plan.WorkspaceRequest{Dir: filepath.Join(t.TempDir(), "absent")}}, sbxerr.Workspace},
	} {
		refused.r.Name, refused.r.Replace = "s", true
		_, err := f.Create(ctx, refused.r)
		errtest.Want(t, err, refused.code)
		if info, err := f.Inspect(ctx, "s"); err != nil || info.ID != first.ID {
			t.Errorf("a refused request removed it: %v", err)
		}
	}
	keyed := plan.CreateRequest{Name: "s", Replace: true, Key: "k"}
	second := f.session(t, keyed)
	if second.ID == first.ID || second.Replaced != first.ID {
		t.Errorf("%+v", second)
	}
	for _, again := range []plan.CreateRequest{keyed, {Name: "s", Ensure: true}} {
		if info := f.session(t, again); info.ID != second.ID {
			t.Errorf("%+v made another one", again)
		}
	}
	if _, err := f.Remove(ctx, "s", true); err != nil {
		t.Fatal(err)
	}
	f.wantNothingLeft(t)
}

// TestTimesEndSandboxes: by their age, and by idleness.
func TestTimesEndSandboxes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := callerContext(t)
	short := 30 * time.Millisecond
	for name, r := range map[string]plan.CreateRequest{"old": {Name: "old", TTL: &short}, "idle": {Name: "idle", IdleTimeout: &short}} {
		f.session(t, r)
		s, err := f.find(ctx, name)
		if err != nil {
			continue // it is over already
		}
		within(t, "the end of the "+name+" one", s.gone)
		if want := map[string]error{"old": ErrExpired, "idle": ErrIdle}[name]; !errors.Is(s.endCause(), want) {
			t.Errorf("the %s one ended because %v", name, s.endCause())
		}
	}
	f.wantNothingLeft(t)
}

// TestWaitKnowsTheResult: also of a sandbox that is removed as it ends, whatever
// ended it, and never says nothing of a command that there was.
func TestWaitKnowsTheResult(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]Reason{ErrExpired: ReasonExpired, ErrRemoved: ReasonCanceled, ErrStopped: ReasonCanceled, errInitLost: ReasonLost} {
		f := newFixture(t)
		ctx := callerContext(t)
		started, err := f.Start(ctx, request("hang"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.find(ctx, started.ID)
		if err != nil {
			t.Fatal(err)
		}
		if info := s.info(); info.Result != nil {
			t.Errorf("while it runs: %+v", info.Result)
		}
		main, err := s.execution("")
		if err != nil {
			t.Fatal(err)
		}
		read := main.read() // what is read is not removed
		s.end(cause)
		within(t, "the end", s.ended)
		info, err := f.Wait(ctx, s.id)
		read()
		if err != nil {
			t.Errorf("%v: %v", cause, err)
		}
		if info.Result == nil || info.Result.ExitCode != 128+9 || info.Result.Reason != want || info.Result.Source != "runtime" {
			t.Errorf("%v: %s, %+v", cause, info.State, info.Result)
		}
	}
	s := &sandbox{record: record{Name: "s", Main: 1}, ending: ErrRemoved, execs: map[uint32]*execution{1: {}}}
	f := newFixture(t)
	errtest.Want(t, f.missedEnd(s), sbxerr.State, "it is not known how its command did: the sandbox was removed")
	s.ending = errLeft
	errtest.Want(t, f.missedEnd(s), sbxerr.Canceled, "the daemon is stopping")
}

// TestTimeBeginsWhenReady: what a slow host takes to make a sandbox is not time
// that its user had.
func TestTimeBeginsWhenReady(t *testing.T) {
	f := newFixture(t)
	var made moment
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error {
		made = now()
		return nil
	}})
	ttl := time.Hour
	f.session(t, plan.CreateRequest{Name: "s", TTL: &ttl})
	s, err := f.find(callerContext(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	if at := s.kept().Expires; at < made+moment(ttl) {
		t.Errorf("its time is over %s early", time.Duration(made+moment(ttl)-at))
	}
	if r, err := readRecord(f.paths.record(s.id), f.boot); err != nil || r.Expires != s.kept().Expires {
		t.Errorf("kept: %d, %v", r.Expires, err)
	}
}

// TestEndBeforeTheStart: a command that could not be started because its sandbox
// was ended says so, and not that PID 1 is gone.
func TestEndBeforeTheStart(t *testing.T) {
	ctx := callerContext(t)
	for cause, want := range map[error]string{ErrExpired: "sandbox s is stopping: the sandbox's time to live is over", ErrStopped: "the sandbox was stopped"} {
		f := newFixture(t)
		f.session(t, plan.CreateRequest{Name: "s"})
		s, err := f.find(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := f.StartExec(ctx, "s", script("unanswered"))
			ended <- err
		}()
		for s.info().Execs == 0 {
			select {
			case err := <-ended:
				t.Fatalf("it ended before its sandbox: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		s.end(cause)
		errtest.Want(t, within(t, "the refusal", ended), sbxerr.State, want)
	}
	for _, tt := range []struct{ cause, err error }{
		{errInitLost, sbxerr.New(sbxerr.Init, "test", "gone")}, // nobody ended it
		{ErrExpired, sbxerr.New(sbxerr.CommandAbsent, "test", "absent")},
		{nil, sbxerr.New(sbxerr.Init, "test", "broken")},
	} {
		if got := (&sandbox{ending: tt.cause}).orEnded(tt.err); got != tt.err {
			t.Errorf("after %v: %v became %v", tt.cause, tt.err, got)
		}
	}
}

func TestBusySandboxIsNotIdle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := callerContext(t)
	idle := 200 * time.Millisecond
	f.session(t, plan.CreateRequest{Name: "s", IdleTimeout: &idle})
	e, err := f.StartExec(ctx, "s", script("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.find(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.asked:
		t.Error("it ended while a command ran")
	case <-time.After(3 * idle):
	}
	if err := f.SignalExec(ctx, "s", e.ID, SignalRequest{Signal: poked}); err != nil {
		t.Error(err)
	}
	within(t, "the end", s.gone)
}

// TestIdleAfterAFailedStart: where the idle time is over while a start is under way
// that fails, the sandbox ends after as much time again, without another command.
func TestIdleAfterAFailedStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	idle := 200 * time.Millisecond
	f.session(t, plan.CreateRequest{Name: "s", IdleTimeout: &idle})
	s, err := f.find(callerContext(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(callerContext(t))
	defer leave()
	failed := make(chan error, 1)
	go func() {
		_, err := f.StartExec(ctx, "s", script("unanswered"))
		failed <- err
	}()
	for deadline := time.Now().Add(soon); s.armed() || s.info().Execs == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the alarm does not come during the start")
		}
	}
	leave()
	errtest.Want(t, within(t, "the failure", failed), sbxerr.Canceled)
	within(t, "the end", s.gone)
	if !errors.Is(s.endCause(), ErrIdle) {
		t.Errorf("it ended because %v", s.endCause())
	}
}

func (s *sandbox) armed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alarm != nil
}

// TestCallersMayComeBack: a foreground command outlives its caller for a grace.
func TestCallersMayComeBack(t *testing.T) {
	f := newFixture(t)
	f.session(t, plan.CreateRequest{Name: "s"})
	left, leave := context.WithCancel(callerContext(t))
	started := make(chan ExecInfo, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := f.Exec(left, "s", script("out:one", "await:10", "out:two", "exit:0"), IO{Started: func(_ Info, e ExecInfo) { started <- e }})
		ended <- err
	}()
	e := within(t, "the start", started)
	leave()
	if err := within(t, "the caller's end", ended); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("it ended with %v", err)
	}
	ctx := callerContext(t)
	var out bytes.Buffer
	poke := func(_ Info, e ExecInfo) {
		if err := f.SignalExec(ctx, "s", e.ID, SignalRequest{Signal: poked}); err != nil {
			t.Error(err)
		}
	}
	if r, err := f.Attach(ctx, "s", e.ID, AttachOptions{}, IO{Stdout: &out, Started: poke}); err != nil || r.ExitCode != 0 || out.String() != "onetwo" {
		t.Errorf("who came back got %q, %+v, %v", &out, r, err)
	}

	f.opts.AttachGrace, f.opts.StopGrace = time.Millisecond, time.Millisecond
	left, leave = context.WithCancel(ctx)
	go func() {
		_, _ = f.Exec(left, "s", script("await:15", "signal:15"), IO{Started: func(_ Info, e ExecInfo) { started <- e }})
	}()
	e = within(t, "the start", started)
	leave()
	if e, err := f.WaitExec(ctx, "s", e.ID); err != nil || e.Result.Reason != ReasonCanceled || e.Result.Cause != CauseCaller {
		t.Errorf("nobody came back: %+v, %v", e.Result, err)
	}
}

// TestInputAfterItsEnd: a command that an earlier daemon started, and whose input
// has ended, still is one with an input.
func TestInputAfterItsEnd(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	s, err := f.find(ctx, f.session(t, plan.CreateRequest{Name: "s"}).ID)
	if err != nil {
		t.Fatal(err)
	}
	for n, withInput := range map[uint32]bool{1: true, 2: false} {
		stdout, outErr := output.Create(output.Options{Path: f.paths.stdout(s.id, n), Limit: 10})
		stderr, errErr := output.Create(output.Options{Path: f.paths.stderr(s.id, n), Limit: 10})
		if err := errors.Join(outErr, errErr); err != nil {
			t.Fatal(err)
		}
		e := newExecution(s, execRecord{Number: n, Stdin: withInput}, stdout, stderr)
		e.take(pid1.Held{Exec: &pid1.Exec{}}) // PID 1 holds no input
		s.update(func() { s.execs[n] = e })
		state, err := f.SendInput(ctx, "s", number(n), InputRequest{Data: []byte("late")})
		switch {
		case !withInput:
			errtest.Want(t, err, sbxerr.State, "command 2 of sandbox s was started without an input")
		case err != nil || !state.Closed:
			t.Errorf("a command whose input has ended: %+v, %v", state, err)
		}
		close(e.settled)
		close(e.done)
		close(e.kept)
	}
}

func TestEndedCommandsAreKeptWithinBounds(t *testing.T) {
	f := newFixture(t)
	f.opts.KeptExecs = 3
	ctx := callerContext(t)
	f.session(t, plan.CreateRequest{Name: "s"})
	for range 8 {
		e, err := f.StartExec(ctx, "s", script("out:x", "exit:0"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WaitExec(ctx, "s", e.ID); err != nil {
			t.Fatal(err)
		}
	}
	f.session(t, plan.CreateRequest{Name: "other"}) // orders nothing, takes time
	deadline := time.Now().Add(soon)
	for {
		list, err := f.Execs(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 3 && list[0].ID == "6" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("kept %+v", list)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSandboxesAreBounded(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSandboxes = 1
	f.session(t, plan.CreateRequest{Name: "s"})
	_, err := f.Create(callerContext(t), plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.Busy, "sandboxes.max")
	if _, err := f.Remove(callerContext(t), "s", true); err != nil {
		t.Error(err)
	}
	f.session(t, plan.CreateRequest{})
}

func TestCommandsAreBounded(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	s := f.sandboxes[f.session(t, plan.CreateRequest{Name: "s"}).ID]
	running := func(n int) { s.update(func() { s.running = n }) }
	running(maxExecs)
	_, err := f.StartExec(ctx, "s", script("exit:0"))
	errtest.Want(t, err, sbxerr.Busy, "256 commands, which is the most")
	running(0)
	if _, err := f.Exec(ctx, "s", script("exit:0"), IO{}); err != nil {
		t.Errorf("the control: %v", err)
	}
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	f.session(t, plan.CreateRequest{Name: "s", Labels: map[string]string{"a": "1", "b": "2"}})
	zero, hour := int64(0), time.Hour
	_, err := f.Update(ctx, "s", UpdateRequest{Limits: &caissonv1.Limits{MemoryBytes: &zero}, Labels: map[string]string{"a": "9"}})
	errtest.Want(t, err, sbxerr.Limits, "memory")
	info, err := f.Update(ctx, "s", UpdateRequest{TTL: &hour, IdleTimeout: &hour, Labels: map[string]string{"b": "", "c": "3"}})
	if err != nil || info.ExpiresAt.IsZero() || info.IdleTimeout != hour || info.Labels["a"] != "1" || len(info.Labels) != 2 || info.Labels["c"] != "3" {
		t.Errorf("%+v, %v", info, err)
	}
	never := time.Duration(0)
	if info, err = f.Update(ctx, "s", UpdateRequest{TTL: &never}); err != nil || !info.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", info, err)
	}
	st, err := f.HostInfo(ctx)
	if err != nil || st.Sandboxes[StateRunning] != 1 {
		t.Errorf("stats %+v, %v", st, err)
	}
}

// Limits that were changed before the gateway refused the rules are what they were.
func TestRefusedRulesChangeNoLimits(t *testing.T) {
	f, gateway := newPublishing(t)
	ctx := callerContext(t)
	info := f.session(t, plan.CreateRequest{Name: "s", Limits: &caissonv1.Limits{MemoryBytes: new(int64(128 << 20))}})
	f.engine.count(t, info.ID, "memory.max", "")
	s := f.sandboxes[info.ID]
	s.update(func() {
		s.record.Network = netns.ModeAllow
		s.record.Policy = policy.Spec{Mode: policy.Allow, Allow: []string{"a.example"}, Map: map[string]string{}}
	})
	memory := func() string {
		text, err := os.ReadFile(filepath.Join(f.engine.cgroups, s.id, "memory.max"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	r := UpdateRequest{Limits: &caissonv1.Limits{MemoryBytes: new(int64(256 << 20))}, Network: new("allow"), Allow: &Rules{[]string{"b.example"}}}
	gateway.refuse = map[string]error{"": sbxerr.New(sbxerr.Gateway, "test", "no")}
	_, err := f.Update(ctx, "s", r)
	errtest.Want(t, err, sbxerr.Gateway, "no")
	if have := s.kept(); have.Limits.MemoryBytes != 128<<20 || have.Policy.Allow[0] != "a.example" || memory() != "134217728" {
		t.Errorf("%+v and %+v, limited to %s", have.Limits, have.Policy, memory())
	}
	gateway.refuse = nil
	if _, err := f.Update(ctx, "s", r); err != nil || s.kept().Policy.Allow[0] != "b.example" || memory() != "268435456" {
		t.Errorf("the control: %v, %+v, limited to %s", err, s.kept().Policy, memory())
	}
}

// TestUpdateWithinTheTimeToLive: its ceiling is compared with what is asked for,
// not with what is left of that a moment later.
// TestLimitsBelowUse names the limits that what is in use does not fit into, and
// nothing that would end it.
func TestLimitsBelowUse(t *testing.T) {
	from := plan.Limits{MemoryBytes: 64 << 20, PIDs: 100, MilliCPU: 1000}
	for want, to := range map[string]plan.Limits{
		"more is in use than memory 16777216 bytes":            {MemoryBytes: 16 << 20, PIDs: 100, MilliCPU: 500},
		"more is in use than memory 16777216 bytes or pids 16": {MemoryBytes: 16 << 20, PIDs: 16, MilliCPU: 1000},
	} {
		err := errInUse(from, to)
		errtest.Want(t, err, sbxerr.State, want)
		if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "end what uses it") {
			t.Errorf("remedy %q", remedy)
		}
	}
}

func TestUpdateWithinTheTimeToLive(t *testing.T) {
	f := newFixture(t)
	rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: 4 * time.Hour, Quota: peer.DefaultQuota()}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 0))
	if _, err := f.Create(ctx, plan.CreateRequest{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	for ttl, says := range map[time.Duration]string{5 * time.Hour: "ttl 5h0m0s is above the ceiling 4h0m0s", 0: "a sandbox without end is above the ceiling"} {
		_, err = f.Update(ctx, "s", UpdateRequest{TTL: &ttl})
		errtest.Want(t, err, sbxerr.Peer, says)
	}
	for _, ttl := range []*time.Duration{nil, new(time.Hour), new(3 * time.Hour)} {
		if _, err := f.Update(ctx, "s", UpdateRequest{TTL: ttl}); err != nil {
			t.Error(err)
		}
	}
	// However often it asks, and whatever the clock of the wall says.
	s := f.mustFind(t, "s")
	granted := 0
	for hours := 1; s.kept().Expires > now(); hours++ {
		for _, ttl := range []time.Duration{30 * time.Minute, 2*time.Hour - time.Minute} {
			if _, err := f.Update(ctx, "s", UpdateRequest{TTL: &ttl}); err == nil {
				granted++
			} else if sbxerr.Of(err) != sbxerr.Peer || !strings.Contains(err.Error(), "counts from the creation") {
				t.Error(err)
			}
			if r := s.kept(); time.Duration(r.Expires-r.Born) > 4*time.Hour {
				t.Fatalf("after %d hours it ends %s after its creation", hours, time.Duration(r.Expires-r.Born))
			}
		}
		s.update(func() { // an hour passes, and the clock of the wall goes back
			s.record.Born, s.record.Expires, s.record.CreatedAt = s.record.Born-moment(time.Hour), s.record.Expires-moment(time.Hour), time.Now()
		})
	}
	if granted == 0 {
		t.Error("nothing was granted")
	}
	least := time.Minute // less than is left is always possible, and so are other changes
	s.update(func() { s.record.Expires = now() + moment(time.Hour) })
	for _, r := range []UpdateRequest{{TTL: &least}, {Labels: map[string]string{"a": "b"}}} {
		if _, err := f.Update(ctx, "s", r); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Update(callerContext(t), s.id, UpdateRequest{TTL: new(9 * time.Hour)}); err != nil { // root has no ceiling
		t.Error(err)
	}
}

// A pause of a sandbox that is removed does not wait for what will not freeze.
func TestPauseOfOneThatIsRemoved(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	info := f.session(t, plan.CreateRequest{Name: "s"})
	f.engine.count(t, info.ID, "cgroup.freeze", "0")
	f.engine.count(t, info.ID, "cgroup.events", "populated 1\nfrozen 0\n")
	paused := make(chan error, 1)
	go func() { _, err := f.Pause(ctx, "s"); paused <- err }()
	s := f.sandboxes[info.ID]
	for !s.kept().Paused {
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	if _, err := f.Remove(ctx, "s", true); err != nil {
		t.Error(err)
	}
	errtest.Want(t, within(t, "an answer", paused), sbxerr.State, "the sandbox was removed")
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("the removal took %s", took)
	}
}

// A caller who leaves while a sandbox is thawed does not make it one that is paused
// and runs.
func TestResumeOfACallerThatLeaves(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	f.engine.count(t, id, "cgroup.freeze", "0")
	f.engine.count(t, id, "cgroup.events", "populated 1\nfrozen 1\n")
	if info, err := f.Pause(ctx, "s"); err != nil || info.State != StatePaused {
		t.Fatalf("%+v, %v", info, err)
	}
	left, leave := context.WithCancel(ctx)
	resumed := make(chan error, 1)
	go func() { _, err := f.Resume(left, "s"); resumed <- err }()
	eventually(t, "the thaw begins", func() bool {
		asked, err := os.ReadFile(filepath.Join(f.engine.cgroups, id, "cgroup.freeze"))
		return err == nil && string(asked) == "0"
	})
	leave()
	time.Sleep(20 * time.Millisecond) // in which it would give up
	f.engine.count(t, id, "cgroup.events", "populated 1\nfrozen 0\n")
	if err := within(t, "an answer", resumed); err != nil {
		t.Error(err)
	}
	if r, err := f.Exec(ctx, "s", script("exit:0"), IO{}); err != nil || r.ExitCode != 0 {
		t.Errorf("a command in what was resumed: %+v, %v", r, err)
	}
}

// TestNobodyIsRefused: a call that does not say who makes it gets nothing.
func TestNobodyIsRefused(t *testing.T) {
	f := newFixture(t)
	for name, call := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error { _, err := f.Create(ctx, plan.CreateRequest{}); return err },
		"run":    func(ctx context.Context) error { _, err := f.Run(ctx, request("exit:0"), IO{}); return err },
		"list":   func(ctx context.Context) error { _, err := f.List(ctx); return err },
		"exec":   func(ctx context.Context) error { _, err := f.Exec(ctx, "s", script("exit:0"), IO{}); return err },
		"clean":  func(ctx context.Context) error { _, err := f.Cleanup(ctx, true); return err },
		"stats":  func(ctx context.Context) error { _, err := f.HostInfo(ctx); return err },
		"files":  func(ctx context.Context) error { _, err := f.Files(ctx, "s"); return err },
	} {
		if err := call(t.Context()); sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A sandbox that was stopped and is still ending when the daemon is stopped too
// does not hold it up.
func TestDrainOfOneThatEnds(t *testing.T) {
	for range 5 {
		f := newFixture(t)
		f.session(t, plan.CreateRequest{Name: "s"})
		s, err := f.find(callerContext(t), "s")
		if err != nil {
			t.Fatal(err)
		}
		s.end(ErrStopped)
		f.dismiss(callerContext(t), s)
		within(t, "its end", s.gone)
	}
}
