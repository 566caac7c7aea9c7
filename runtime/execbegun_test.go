package runtime

import (
	"bytes"
	"context"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
)

// starting makes a sandbox in which a command is being started, until it is poked.
func (f *fixture) starting(t *testing.T, r plan.ExecRequest) (id string, e *execution, started <-chan error) {
	t.Helper()
	ctx := callerContext(t)
	id = f.session(t, plan.CreateRequest{}).ID
	s, err := f.find(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	r.Args = append([]string{"late"}, r.Args...)
	begun := make(chan error, 1)
	go func() {
		_, err := f.StartExec(ctx, id, r)
		begun <- err
	}()
	eventually(t, "a command is being started", func() bool { return len(s.executions()) == 1 })
	return id, s.executions()[0], begun
}

// eventually waits for what must become true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestWordsToWhatIsBeingStarted: they are for the command once it runs, and none
// of them is lost.
func TestWordsToWhatIsBeingStarted(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id, e, started := f.starting(t, plan.ExecRequest{Args: []string{"await:12", "cat", "exit:3"}, Stdin: true})
	var out bytes.Buffer
	attached, sent := make(chan *Result, 1), make(chan error, 2)
	go func() {
		r, err := f.Attach(ctx, id, "1", AttachOptions{}, IO{Stdout: &out})
		if err != nil {
			t.Error(err)
		}
		attached <- r
	}()
	go func() {
		_, err := f.SendInput(ctx, id, "1", InputRequest{Data: []byte("typed"), Close: true})
		sent <- err
	}()
	go func() { sent <- f.SignalExec(ctx, id, "1", SignalRequest{Signal: syscall.SIGUSR2}) }()
	time.Sleep(20 * time.Millisecond) // most likely it is attached by now
	if e.process() != nil || e.isDone() {
		t.Error("it began early")
	}
	f.engine.poke(t, id)
	if err := within(t, "the start", started); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := within(t, "the input and the signal", sent); err != nil {
			t.Error(err)
		}
	}
	if r := within(t, "the end", attached); r == nil || r.ExitCode != 3 || out.String() != "typed" {
		t.Errorf("%+v: %q", r, &out)
	}
}

// TestSignalWhileStarting: it reaches the command, however long the start takes.
func TestSignalWhileStarting(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id, _, started := f.starting(t, script("await:15", "exit:4"))
	signalled := make(chan error, 1)
	go func() { signalled <- f.SignalExec(ctx, id, "1", SignalRequest{Signal: syscall.SIGTERM}) }()
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	errtest.Want(t, f.SignalExec(short, id, "1", SignalRequest{Signal: syscall.SIGTERM}), sbxerr.Canceled, "command 1 is being started")
	f.engine.poke(t, id)
	if err := within(t, "the start", started); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the signal", signalled); err != nil {
		t.Error(err)
	}
	if e, err := f.WaitExec(ctx, id, "1"); err != nil || e.Result.ExitCode != 4 {
		t.Errorf("%+v, %v", e.Result, err)
	}
}

// TestStopWhileStarting: a command that is being started has the grace of those
// that run.
func TestStopWhileStarting(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id, e, started := f.starting(t, script("await:15", "out:bye", "exit:5"))
	stopped := make(chan error, 1)
	go func() {
		_, err := f.Stop(ctx, id, nil)
		stopped <- err
	}()
	eventually(t, "it is to stop", func() bool { return e.s.info().State != StateRunning })
	f.engine.poke(t, id)
	if err := within(t, "the start", started); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the end", stopped); err != nil {
		t.Error(err)
	}
	if r := e.result(); r == nil || r.ExitCode != 5 {
		t.Errorf("%+v", r)
	}
}

// TestWhatWasNeverStarted: who waits for a command that cannot be started is told
// why, as its caller is.
func TestWhatWasNeverStarted(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id, e, started := f.starting(t, script("fail:2"))
	read := make(chan struct{}, 2)
	streams := IO{Stdout: io.Discard, Started: func(Info, ExecInfo) { read <- struct{}{} }}
	calls := map[string]func() error{
		"wait":   func() error { read <- struct{}{}; _, err := f.WaitExec(ctx, id, "1"); return err },
		"attach": func() error { _, err := f.Attach(ctx, id, "1", AttachOptions{}, streams); return err },
		"logs":   func() error { return f.Logs(ctx, id, LogOptions{Exec: "1", Follow: true}, io.Discard, nil) },
		"signal": func() error { return f.SignalExec(ctx, id, "1", SignalRequest{Signal: syscall.SIGTERM}) },
	}
	answers := map[string]chan error{}
	for name, call := range calls {
		answer := make(chan error, 1)
		go func() { answer <- call() }()
		answers[name] = answer
	}
	within(t, "a call", read)
	within(t, "a call", read)
	eventually(t, "somebody reads", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.logs > 0 })
	time.Sleep(20 * time.Millisecond) // most likely all of them have found the command
	f.engine.poke(t, id)
	errtest.Want(t, within(t, "the failure", started), sbxerr.CommandAbsent)
	for name, answer := range answers {
		t.Log(name)
		errtest.Want(t, within(t, name, answer), sbxerr.CommandAbsent, "command 1 of sandbox "+id+" was not started")
	}
}

// TestRunThatWasNeverStarted: so is who waits for the sandbox of one.
func TestRunThatWasNeverStarted(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	r := request("late", "fail:2")
	r.Create.Name = "s"
	started := make(chan error, 1)
	go func() {
		_, err := f.Start(ctx, r)
		started <- err
	}()
	eventually(t, "its command is being started", func() bool {
		s, err := f.find(ctx, "s")
		return err == nil && len(s.executions()) == 1
	})
	s := f.mustFind(t, "s") // which Wait has, too
	f.engine.poke(t, s.id)
	errtest.Want(t, within(t, "the failure", started), sbxerr.CommandAbsent)
	errtest.Want(t, f.missedEnd(s), sbxerr.CommandAbsent, "command 1 of sandbox s was not started")
}

// TestWordsToWhatHasEnded: a command of which only an earlier daemon knew more
// than its end takes no word.
func TestWordsToWhatHasEnded(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	s, err := f.find(ctx, f.session(t, plan.CreateRequest{Name: "s"}).ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.log.Put(1, execRecord{Number: 1, OutputLimit: 10, Result: &Result{ExitCode: 3}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.loadExecs(t.Context(), s, []pid1.Held{}, ends{}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // a word and the end are there at once: either may be seen first
		errtest.Want(t, f.SignalExec(ctx, "s", "1", SignalRequest{Signal: syscall.SIGTERM}), sbxerr.State, "has ended")
		r, err := f.Attach(ctx, "s", "1", AttachOptions{}, IO{})
		if err != nil || r.ExitCode != 3 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	e, err := s.execution("1")
	if err != nil {
		t.Fatal(err)
	}
	f.signal(ctx, e, syscall.SIGTERM) // as Stop would, had it not ended
}

// TestStopWithoutItsCaller: a caller that leaves does not cut the grace short.
func TestStopWithoutItsCaller(t *testing.T) {
	f := newFixture(t)
	id := f.commandIn(t, false, "await:15", "out:asked", "await:10", "exit:6") // asked to end, it takes its time
	s, err := f.find(callerContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(callerContext(t))
	stopped := make(chan error, 1)
	go func() {
		_, err := f.Stop(ctx, id, nil)
		stopped <- err
	}()
	eventually(t, "its command is asked to end", func() bool { return s.executions()[0].info().StdoutBytes > 0 })
	leave()
	errtest.Want(t, within(t, "the caller's end", stopped), sbxerr.Canceled)
	time.Sleep(50 * time.Millisecond)
	if err := s.endCause(); err != nil {
		t.Errorf("it is to end at once: %v", err)
	}
	f.engine.poke(t, id)
	within(t, "the end", s.ended)
	if r := s.executions()[0].result(); r == nil || r.ExitCode != 6 {
		t.Errorf("its command: %+v", r)
	}
}

// TestPanicBesideACall: it ends that call, and not the daemon.
func TestPanicBesideACall(t *testing.T) {
	f := newFixture(t)
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.beside(end, func() { panic("bug") })
	}()
	within(t, "its end", done)
	errtest.Want(t, context.Cause(ctx), sbxerr.Internal, "a part of the call panicked")
}
