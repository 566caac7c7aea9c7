package runtime

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/usage"
)

// A sandbox that is gone is told of with its last commands and how they ended, to who saw it.
func TestPast(t *testing.T) {
	f := newFixture(t)
	f.usages = usage.Store{Dir: t.TempDir(), Max: 4, Age: time.Hour}
	f.opts.KeptExecs = 100
	id := f.session(t, plan.CreateRequest{Name: "box", Session: "mine"}).ID
	f.uses(t, id, time.Millisecond, 1<<20)
	f.sampleAll(t.Context())
	long := strings.Repeat("x", 4096)
	for i := range observe.MaxCommands + 1 {
		args := []string{"exit:3", "", long, "end"}
		if i == 0 {
			args = []string{"exit:0"}
		}
		if _, err := f.Exec(callerContext(t), id, plan.ExecRequest{Args: args}, IO{}); err != nil {
			t.Fatal(err)
		}
	}
	if past, err := f.Past(callerContext(t)); err != nil || len(past) > 0 {
		t.Errorf("while it lives: %+v, %v", past, err)
	}
	if _, err := f.Remove(callerContext(t), id, true); err != nil {
		t.Fatal(err)
	}
	past, err := f.Past(callerContext(t)) // at once: a daemon that is killed now has kept it
	if err != nil || len(past) != 1 || past[0].ID != id || past[0].Name != "box" || past[0].Session != "mine" || past[0].State != StateRemoved || past[0].ExitedAt.IsZero() || past[0].Image == "" {
		t.Errorf("%+v, %v", past, err)
	}
	h, err := f.History(callerContext(t), id)
	if err != nil || len(h.Execs) != observe.MaxCommands || h.CreatedAt.IsZero() || h.EndedAt.IsZero() {
		t.Fatalf("%d commands of %v to %v, %v", len(h.Execs), h.CreatedAt, h.EndedAt, err)
	}
	for _, e := range h.Execs {
		if e.Result == nil || e.Result.ExitCode != 3 || e.Result.Reason != ReasonExited || e.State != ExecExited || len(strings.Join(e.Args, "")) > observe.MaxArgs || !slices.Equal(e.Args[:2], []string{"exit:3", ""}) {
			t.Errorf("%+v", e)
		}
	}
	if past, err := f.Past(f.peer(t)); err != nil || len(past) > 0 {
		t.Errorf("another user sees %+v, %v", past, err)
	}
}
