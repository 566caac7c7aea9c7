package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/journal"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// holdCounters makes the next one who reads how often a limit was hit in the
// sandbox id wait, as a busy host would: reached is closed when somebody does.
func (e *fakeEngine) holdCounters(t *testing.T, id string) (reached <-chan struct{}, release func()) {
	t.Helper()
	path := filepath.Join(e.cgroups, id, "memory.events")
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	came, opened := make(chan struct{}), make(chan *os.File, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when somebody reads (fifo(7))
		if err != nil {
			t.Error(err)
		}
		opened <- f
		close(came)
	}()
	return came, func() {
		f := <-opened
		err := os.Remove(path)
		e.count(t, id, "memory.events", cgroupFiles["memory.events"]) // for all who read after it
		_, writeErr := f.WriteString(cgroupFiles["memory.events"])
		if err := errors.Join(err, writeErr, f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// commandIn starts a script, in a session or as a detached run.
func (f *fixture) commandIn(t *testing.T, detached bool, steps ...string) (id string) {
	t.Helper()
	if detached {
		return f.start(t, request(steps...)).ID
	}
	id = f.session(t, plan.CreateRequest{}).ID
	if _, err := f.StartExec(callerContext(t), id, script(steps...)); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestLeaveKeepsResults: a daemon that leaves its sandboxes to the next one keeps
// the results first that it has begun to tell.
func TestLeaveKeepsResults(t *testing.T) {
	t.Parallel()
	for name, detached := range map[string]bool{"of a session": false, "of a detached run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.KeepOnExit()
			ctx := callerContext(t)
			id := f.commandIn(t, detached, "await:10", "out:told", "exit:3")
			s, err := f.find(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			reached, release := f.engine.holdCounters(t, id)
			f.engine.poke(t, id)
			within(t, "the end of the command", reached)
			drained := make(chan error, 1)
			go func() { drained <- f.drain(ctx) }()
			within(t, "the word to leave", s.asked)
			select {
			case <-s.gone:
				t.Error("it left before the result was kept")
			case <-time.After(100 * time.Millisecond):
			}
			release()
			if err := within(t, "the daemon's end", drained); err != nil {
				t.Error(err)
			}
			kept, err := journal.New[execRecord](f.paths.execs(id)).Load()
			if r := kept[1].Result; err != nil || r == nil || r.ExitCode != 3 || r.Reason != ReasonExited || r.StdoutBytes != 4 {
				t.Errorf("kept %+v, %v", r, err)
			}
			if r, err := readRecord(f.paths.record(id), f.boot); err != nil || r.ExitedAt.IsZero() == detached {
				t.Errorf("kept of the sandbox: exited at %v, %v", r.ExitedAt, err)
			}
			if _, err := f.Cleanup(ctx, false); err != nil { // nobody goes on with it
				t.Error(err)
			}
		})
	}
}

// TestHandOver: who waits for what the next daemon goes on with is sent there at
// once, and nobody else.
func TestHandOver(t *testing.T) {
	f := newFixture(t)
	f.opts.AttachGrace = time.Millisecond
	ctx := callerContext(t)
	id := f.commandIn(t, false, "await:10", "exit:0")
	started := make(chan struct{}, 3)
	streams := IO{Started: func(Info, ExecInfo) { started <- struct{}{} }}
	runs := make(chan error, 1)
	go func() { _, err := f.Run(ctx, request("await:10", "exit:0"), streams); runs <- err }()
	sent := make(chan error, 5)
	for _, call := range []func() error{
		func() error { _, err := f.Exec(ctx, id, script("hang"), streams); return err },
		func() error { _, err := f.Attach(ctx, id, "1", AttachOptions{}, streams); return err },
		func() error { _, err := f.WaitExec(ctx, id, "1"); return err },
		func() error { _, err := f.Wait(ctx, id); return err },
		func() error { return f.Logs(ctx, id, LogOptions{Exec: "1", Follow: true}, io.Discard, io.Discard) },
	} {
		go func() { sent <- call() }()
	}
	for range cap(started) {
		within(t, "the start", started)
	}
	select {
	case err := <-sent:
		t.Fatalf("a call ended before its command: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.KeepOnExit()
	left := make(chan struct{})
	go func() { f.Leave(ctx, time.Hour); close(left) }()
	for range cap(sent) {
		errtest.Want(t, within(t, "the end of a call", sent), sbxerr.Canceled, "the next one goes on with the sandbox")
	}
	time.Sleep(50 * time.Millisecond) // the grace of one whose caller left is long over
	commands, err := f.Execs(ctx, id)
	if err != nil || len(commands) != 2 || commands[0].Result != nil || commands[1].Result != nil {
		t.Errorf("the commands do not run on: %+v, %v", commands, err)
	}
	for _, s := range f.all() {
		f.engine.poke(t, s.id)
	}
	if err := within(t, "the end of the run", runs); err != nil {
		t.Errorf("a run that is for its caller: %v", err)
	}
	within(t, "the end of the runs", left)
	f.keep.Store(false)
}

// TestLeaveAwaitsCreation: who asked for a sandbox that the next daemon goes on with
// hears of it.
func TestLeaveAwaitsCreation(t *testing.T) {
	f := newFixture(t)
	making, made := make(chan struct{}), make(chan struct{})
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error {
		close(making)
		<-made
		return nil
	}})
	f.KeepOnExit()
	created := make(chan error, 1)
	go func() { _, err := f.Create(callerContext(t), plan.CreateRequest{Name: "s"}); created <- err }()
	within(t, "the making", making)
	left := make(chan struct{})
	go func() { f.Leave(callerContext(t), time.Hour); close(left) }()
	select {
	case <-left:
		t.Error("it is not waited for")
	case <-time.After(50 * time.Millisecond):
	}
	close(made)
	if err := within(t, "the sandbox", created); err != nil {
		t.Error(err)
	}
	within(t, "the end of the wait", left)
	f.keep.Store(false)
}

// TestLeaveEndsCalls: where nothing is left to another daemon, each call ends as that
// does which it waits for.
func TestLeaveEndsCalls(t *testing.T) {
	f := newFixture(t)
	absent := func(string) string { return filepath.Join(f.dir, "absent") }
	f.opts.Traffic = traffic.New(traffic.Files{Carried: absent, Rest: absent, Names: absent}, slog.New(slog.DiscardHandler))
	ctx := callerContext(t)
	id := f.commandIn(t, true, "out:x", "hang") // which nobody is connected with: it is not asked
	deaf := f.session(t, plan.CreateRequest{}).ID
	started := make(chan struct{}, 3)
	streams := IO{Started: func(Info, ExecInfo) { started <- struct{}{} }}
	type end struct {
		what string
		r    *Result
		err  error
	}
	ended := make(chan end, 6)
	var out bytes.Buffer
	for what, call := range map[string]func() (*Result, error){
		"run":  func() (*Result, error) { return f.Run(ctx, request("await:15", "exit:3"), streams) },
		"exec": func() (*Result, error) { return f.Exec(ctx, id, script("await:15", "exit:3"), streams) },
		"deaf": func() (*Result, error) { return f.Exec(ctx, deaf, script("hang"), streams) },
		"wait": func() (*Result, error) { _, err := f.Wait(ctx, id); return nil, err },
		"logs": func() (*Result, error) {
			return nil, f.Logs(ctx, id, LogOptions{Exec: "1", Follow: true}, &out, io.Discard)
		},
		"traffic": func() (*Result, error) {
			return nil, f.Traffic(ctx, id, "", true, func(TrafficEntry) error { return nil })
		},
	} {
		go func() { r, err := call(); ended <- end{what, r, err} }()
	}
	for range cap(started) {
		within(t, "the start", started)
	}
	f.Leave(ctx, 300*time.Millisecond)
	for range cap(ended) {
		e := within(t, "the end of a call", ended)
		want, isCommand := map[string]int{"run": 3, "exec": 3, "deaf": exitKilled}[e.what]
		if e.err != nil || isCommand && (e.r.ExitCode != want || e.r.Reason != ReasonCanceled || e.r.Cause != CauseDaemon || e.r.Source != "runtime") {
			t.Errorf("%s: %+v, %v", e.what, e.r, e.err)
		}
	}
	if out.String() != "x" {
		t.Errorf("logs showed %q", &out)
	}
	_, err := f.Create(ctx, plan.CreateRequest{})
	errtest.Want(t, err, sbxerr.State, "the daemon is stopping")
}

// TestLeftCommandIsNotTold: what ends after the daemon has begun to leave is for
// the next one, which gets the exit from PID 1.
func TestLeftCommandIsNotTold(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id := f.commandIn(t, false, "hang")
	s, err := f.find(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.execution("1")
	if err != nil {
		t.Fatal(err)
	}
	s.end(errLeft)
	if s.concludes(e) {
		t.Error("its end is told by a daemon that is gone")
	}
	within(t, "the daemon's end", s.gone)
	if e.result() != nil {
		t.Errorf("result %+v", e.result())
	}
	if _, err := f.Cleanup(ctx, false); err != nil {
		t.Error(err)
	}
}

// TestFinishEnds: a sandbox whose own command has ended is not left to anybody.
func TestFinishEnds(t *testing.T) {
	m := newFixture(t).Manager
	for name, tt := range map[string]struct {
		concluding bool
		main       uint32
		over       bool
		ending     error
	}{
		"its own command ends": {true, 1, true, errMainEnded},
		"another one ends":     {true, 0, false, errLeft},
		"nothing ends":         {false, 1, false, errLeft},
	} {
		s := &sandbox{record: record{Main: tt.main}, ending: errLeft}
		e := newExecution(s, execRecord{Number: 1}, nil, nil)
		s.execs = map[uint32]*execution{1: e}
		if e.concluding = tt.concluding; tt.concluding {
			time.AfterFunc(10*time.Millisecond, func() { close(e.kept) })
		}
		if over := m.finishEnds(t.Context(), s); over != tt.over || isClosed(e.kept) != tt.concluding || !errors.Is(s.endCause(), tt.ending) {
			t.Errorf("%s: over %v, ends because %v", name, over, s.endCause())
		}
	}
}

// TestFinishEndsOfOthers: of a sandbox that is not left after all, as its own command
// has ended, those ends are told too that were left to the next daemon.
func TestFinishEndsOfOthers(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id := f.session(t, plan.CreateRequest{}).ID
	if _, err := f.StartExec(ctx, id, plan.ExecRequest{Args: []string{"cat", "exit:4"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	s := f.mustFind(t, id)
	other := s.executions()[0]
	main := newExecution(s, execRecord{Number: 7}, nil, nil)
	main.concluding = true
	close(main.kept)
	s.update(func() { s.ending, s.record.Main, s.execs[7] = errLeft, 7, main })
	if err := other.closeInput(); err != nil {
		t.Error(err)
	}
	eventually(t, "it is left to the next daemon", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return other.leftAlone
	})
	if !f.finishEnds(ctx, s) {
		t.Error("it is left")
	}
	within(t, "the word of its end", other.kept)
	if r := other.result(); r.ExitCode != 4 || r.Reason != ReasonExited {
		t.Errorf("it ended with %+v", r)
	}
	s.update(func() {
		s.ending, s.record.Main = nil, 0 // a session again
		delete(s.execs, 7)
	})
}

// TestRemovedIsNotLeft: of removing a sandbox and leaving it, only the first is done.
func TestRemovedIsNotLeft(t *testing.T) {
	for _, removed := range []bool{true, false} {
		t.Run(fmt.Sprintf("removed first %v", removed), func(t *testing.T) { testRemovedIsNotLeft(t, removed) })
	}
}

func testRemovedIsNotLeft(t *testing.T, removed bool) {
	f := newFixture(t)
	var log bytes.Buffer // nothing may fail, and leave tells that nowhere else
	f.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	ctx := callerContext(t)
	s := f.sandboxes[f.session(t, plan.CreateRequest{Name: "s"}).ID]
	if _, err := f.Stop(ctx, "s", new(time.Duration(0))); err != nil {
		t.Fatal(err)
	}
	if !exists(f.paths.record(s.id)) || f.sandboxes[s.id] != s {
		t.Fatal("there is nothing to remove or to leave")
	}
	if removed {
		err := f.destroy(ctx, s)
		f.Manager.leave(s)
		if err != nil || exists(f.paths.sandbox(s.id)) || exists(f.paths.output(s.id)) {
			t.Errorf("it is not removed: %v", err)
		}
	} else {
		f.Manager.leave(s)
		err := f.destroy(ctx, s)
		if r, readErr := readRecord(f.paths.record(s.id), f.boot); err != nil || readErr != nil || r.ExitedAt.IsZero() || !exists(f.paths.output(s.id)) {
			t.Errorf("it is not left: %v, %v, kept %+v", err, readErr, r)
		}
		if _, err := f.Cleanup(ctx, false); err != nil { // nobody goes on with it
			t.Error(err)
		}
	}
	if f.sandboxes[s.id] != nil || log.Len() > 0 {
		t.Errorf("known: %v; logged:\n%s", f.sandboxes[s.id], &log)
	}
}

// TestLeaveAwaitsStops: who stops a sandbox hears of its end from the daemon that
// leaves, also where the grace is longer than that waits.
func TestLeaveAwaitsStops(t *testing.T) {
	for name, deaf := range map[string]bool{"it obeys": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.KeepOnExit()
			ctx := callerContext(t)
			id := f.commandIn(t, false, "await:15", "out:asked", "await:10", "exit:6")
			s := f.mustFind(t, id)
			type end struct {
				Info
				err error
			}
			stopped := make(chan end, 1)
			go func() { info, err := f.Stop(ctx, id, new(time.Hour)); stopped <- end{info, err} }()
			eventually(t, "it stops", func() bool { return s.executions()[0].info().StdoutBytes > 0 })
			left, grace := make(chan struct{}), soon
			if deaf {
				grace = 10 * time.Millisecond
			}
			go func() { f.Leave(ctx, grace); close(left) }()
			if !deaf {
				time.Sleep(10 * time.Millisecond) // most likely it waits by now
				f.engine.poke(t, id)
			}
			within(t, "the end of the wait", left)
			if !isClosed(s.ended) {
				t.Error("it was not waited for")
			}
			if got := within(t, "the end of the stop", stopped); got.err != nil || got.State != StateExited {
				t.Errorf("stopped %+v", got)
			}
			if r := s.executions()[0].result(); deaf != (r.Reason == ReasonCanceled) {
				t.Errorf("its command: %+v", r)
			}
			late := f.mustFind(t, f.commandIn(t, false, "hang"))
			_, err := f.Stop(ctx, late.id, nil)
			errtest.Want(t, err, sbxerr.Canceled, "the next one goes on with the sandbox")
			if info := late.info(); info.State != StateRunning {
				t.Errorf("one that is stopped later is %s", info.State)
			}
			f.keep.Store(false)
		})
	}
}

// TestStopOfWhatIsLeft: a stop that comes as its sandbox is left already changes
// nothing of it, and says so.
func TestStopOfWhatIsLeft(t *testing.T) {
	f := newFixture(t)
	f.KeepOnExit()
	ctx := callerContext(t)
	id := f.commandIn(t, false, "hang")
	s := f.mustFind(t, id)
	held := newExecution(s, execRecord{Number: 7}, newStore(t), newStore(t))
	held.concluding = true // until its result is kept, s is not left
	s.update(func() { s.execs[7] = held })
	s.endLeft()
	f.stop(ctx, s, 0) // what the call below does beside its wait
	if got := s.info().State; got != StateRunning || !errors.Is(s.endCause(), errLeft) {
		t.Errorf("it is %s, and ends because %v", got, s.endCause())
	}
	f.mu.Lock()
	active := f.active
	f.mu.Unlock()
	stopped := make(chan error, 1)
	go func() { _, err := f.Stop(ctx, id, new(time.Hour)); stopped <- err }()
	eventually(t, "it is asked to stop", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.active > active })
	time.Sleep(50 * time.Millisecond) // most likely it waits by now; else there is no such sandbox, and the test fails
	close(held.kept)
	errtest.Want(t, within(t, "the end of the stop", stopped), sbxerr.Canceled, "the next one goes on with the sandbox")
	within(t, "the daemon's end", s.gone)
	if r, err := readRecord(f.paths.record(id), f.boot); err != nil || r.StopBy != 0 || !r.ExitedAt.IsZero() {
		t.Errorf("kept %+v, %v", r, err)
	}
	if c := f.engine.get(id); c == nil || c.cmd.Process.Signal(unix.Signal(0)) != nil {
		t.Error("its PID 1 does not run on")
	}
	if _, err := f.Cleanup(ctx, false); err != nil { // nobody goes on with it
		t.Error(err)
	}
	f.keep.Store(false)
}

// TestStopOutlastsTheDaemon: a sandbox that is stopped when its daemon leaves is
// left as one that has ended.
func TestStopOutlastsTheDaemon(t *testing.T) {
	f := newFixture(t)
	f.KeepOnExit()
	ctx := callerContext(t)
	id := f.commandIn(t, false, "hang")
	s := f.sandboxes[id]
	stopped := make(chan error, 1)
	go func() { _, err := f.Stop(ctx, id, new(time.Hour)); stopped <- err }()
	eventually(t, "it stops", func() bool { return s.info().State == StateStopping })
	if err := f.drain(ctx); err != nil {
		t.Error(err)
	}
	if err := within(t, "the end", stopped); err != nil {
		t.Error(err)
	}
	if !errors.Is(s.endCause(), ErrStopped) {
		t.Errorf("it ended because %v", s.endCause())
	}
	if r, err := readRecord(f.paths.record(id), f.boot); err != nil || r.ExitedAt.IsZero() {
		t.Errorf("kept %+v, %v", r, err)
	}
	if _, err := f.Cleanup(ctx, false); err != nil {
		t.Error(err)
	}
}
