package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/journal"
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
	id = f.session(t, CreateRequest{}).ID
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
