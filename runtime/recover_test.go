package runtime

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/journal"
	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// adopting makes a sandbox known that an earlier daemon left and that has not yet
// answered.
func adopting(t *testing.T, m *Manager) *sandbox {
	t.Helper()
	s := m.newSandbox(nil, record{ID: idA1, Name: "one"})
	if err := m.admit(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Who asks for a sandbox of an earlier daemon waits until it is known what becomes of
// it, and no longer than the call or the daemon.
func TestFindWaitsForAdoption(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(m *Manager, s *sandbox, hangUp func())
		code sbxerr.Code // "": it is found
	}{
		{"gone on with", func(_ *Manager, s *sandbox, _ func()) { s.setState(StateRunning); close(s.made) }, ""},
		{"given up", func(_ *Manager, s *sandbox, _ func()) { s.setState(StateStopping); close(s.made) }, ""},
		{"let go of", func(m *Manager, s *sandbox, _ func()) { m.forget(s); close(s.made) }, sbxerr.NotFound},
		{"the caller leaves", func(_ *Manager, _ *sandbox, hangUp func()) { hangUp() }, sbxerr.Canceled},
		{"the daemon leaves", func(m *Manager, _ *sandbox, _ func()) { m.handOver() }, sbxerr.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newTestManager()
			s := adopting(t, m)
			ctx, hangUp := context.WithCancel(callerContext(t))
			defer hangUp()
			found := make(chan error, 1)
			go func() {
				_, err := m.find(ctx, "one")
				found <- err
			}()
			tt.then(m, s, hangUp)
			if err := within(t, "the answer", found); sbxerr.Of(err) != tt.code {
				t.Errorf("found: %v, want %q", err, tt.code)
			}
		})
	}
}

// Of a sandbox that was given up before it said which commands it has, nobody is told
// that there are none.
func TestCommandsOfOneThatIsGivenUp(t *testing.T) {
	m := newTestManager()
	s := adopting(t, m)
	s.unheard = true
	listed, waited := make(chan error, 1), make(chan error, 1)
	go func() { _, err := m.Execs(callerContext(t), "one"); listed <- err }()
	go func() { _, err := m.WaitExec(callerContext(t), "one", "1"); waited <- err }()
	s.end(errInjected)
	s.setState(StateStopping)
	close(s.made)
	for what, answer := range map[string]<-chan error{"list": listed, "wait": waited} {
		errtest.Want(t, within(t, "the answer to "+what, answer), sbxerr.State, "sandbox one is stopping: injected")
	}
	s.unheard = false
	for _, state := range []State{StateRunning, StateStopping} {
		s.setState(state)
		if list, err := m.Execs(callerContext(t), "one"); err != nil || len(list) != 0 {
			t.Errorf("of one that is %s, and was gone on with: %+v, %v", state, list, err)
		}
	}
}

// What does not come back is left to Cleanup only while that is still to be done.
func TestDropOnlyBeforeServing(t *testing.T) {
	m := newTestManager()
	r := &recovery{Manager: m}
	s := adopting(t, m)
	s.end(errors.New("silent"))
	if !r.drop(s, errInjected) || m.byID(s.id) != nil {
		t.Error("it is known while nothing is served")
	}
	s = adopting(t, m)
	r.conclude()
	if r.drop(s, errInjected) || m.byID(s.id) == nil {
		t.Error("it was left to a Cleanup that may be over")
	}
}

// Who waits for a command of a sandbox that does not come back after all gets an
// answer, and what the command wrote.
func TestGiveUpTellsOfCommands(t *testing.T) {
	m := newTestManager()
	m.stages = nil // the sandbox has nothing on the host
	s := adopting(t, m)
	s.log = journal.New[execRecord](t.TempDir() + "/execs")
	first := exec.Command("sleep", "3600")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Wait() }() // killed
	process, err := openProcess(first.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s.process = process
	e := newExecution(s, execRecord{Number: 1}, newStore(t), newStore(t))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // a writer that lives on
	if _, err := io.WriteString(w, "told"); err != nil {
		t.Fatal(err)
	}
	e.take(pid1.Held{Exec: &pid1.Exec{}, Stdout: r})
	s.update(func() { s.execs[1], s.running = e, 1 })
	s.end(errInjected)
	s.setState(StateStopping)
	waited := make(chan error, 1)
	go func() { waited <- e.wait(t.Context()) }()
	go m.giveUp(context.Background(), s, errInjected)
	if err := within(t, "the end of the command", waited); err != nil {
		t.Error(err)
	}
	if got := e.result(); got == nil || got.Reason != ReasonLost || got.StdoutBytes != 4 || e.info().State != ExecExited {
		t.Errorf("told %+v", got)
	}
	within(t, "the removal", s.gone)
	if !isClosed(e.settled) || !isClosed(e.kept) || !isClosed(s.ended) || s.running != 0 {
		t.Error("somebody may still wait")
	}
}

func newStore(t *testing.T) *output.Store {
	t.Helper()
	store, err := output.Create(output.Options{Path: t.TempDir() + "/out", Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return store
}
