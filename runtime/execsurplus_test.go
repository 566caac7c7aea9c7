package runtime

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/runtime/journal"
	"github.com/caisson-run/caisson/runtime/plan"
)

// recorded is the numbers of the commands that a later daemon would know of.
func (f *fixture) recorded(t *testing.T, id string) []uint32 {
	t.Helper()
	records, err := journal.New[execRecord](f.paths.execs(id)).Load()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(records))
}

func (f *fixture) startExecOf(t *testing.T, steps ...string) string {
	t.Helper()
	e, err := f.StartExec(callerContext(t), "s", script(steps...))
	if err != nil {
		t.Fatal(err)
	}
	return e.ID
}

func (f *fixture) waitExecOf(t *testing.T, id string) {
	t.Helper()
	if _, err := f.WaitExec(callerContext(t), "s", id); err != nil {
		t.Fatal(err)
	}
}

// TestNumbersAreGivenOnce: the newest command is known to a later daemon, whenever it
// ended. The daemon's own commands take none of these numbers.
func TestNumbersAreGivenOnce(t *testing.T) {
	f := newFixture(t)
	f.opts.KeptExecs = 1
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	s := f.sandboxes[id]
	first := f.startExecOf(t, "await:10", "exit:0")
	f.waitExecOf(t, f.startExecOf(t, "out:x", "exit:0"))
	if n := s.ownCommand(nil).Number; n != firstOwn|1 { // as for work on files
		t.Errorf("the daemon's own command is %d", n)
	}
	f.engine.poke(t, id)
	f.waitExecOf(t, first)
	older, err := s.execution(first)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "that its end is kept", older.kept)
	if got := f.recorded(t, id); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("after the end of the first: %v", got)
	}
	f.waitExecOf(t, f.startExecOf(t, "exit:0"))
	eventually(t, "the others are dropped", func() bool { return slices.Equal(f.recorded(t, id), []uint32{3}) })
}

// TestRecordsGoLast: a number is free when its output is gone.
func TestRecordsGoLast(t *testing.T) {
	f := newFixture(t)
	f.opts.KeptExecs = 1
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	f.waitExecOf(t, f.startExecOf(t, "exit:0"))
	if err := os.Mkdir(f.paths.stdout(id, 1), 0o700); err != nil { // which is no file that could be removed
		t.Fatal(err)
	}
	for _, want := range []string{"2", "3"} {
		f.waitExecOf(t, f.startExecOf(t, "exit:0"))
		e, err := f.sandboxes[id].execution(want)
		if err != nil {
			t.Fatal(err)
		}
		within(t, "that its end is kept", e.kept)
	}
	eventually(t, "the second command is forgotten", func() bool { return slices.Equal(f.recorded(t, id), []uint32{1, 3}) })
	if err := os.Remove(f.paths.stdout(id, 1)); err != nil {
		t.Error(err)
	}
}
