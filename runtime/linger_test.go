package runtime

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime/plan"
)

// TestWhatCommandsLeave: what an ended command left running can go on writing,
// whatever ends after it, and what it writes is kept.
func TestWhatCommandsLeave(t *testing.T) {
	f := newFixture(t)
	f.opts.KeptExecs = 2
	ctx := callerContext(t)
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	ended := func(steps ...string) {
		t.Helper()
		e, err := f.StartExec(ctx, "s", script(steps...))
		if err == nil {
			_, err = f.WaitExec(ctx, "s", e.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (ids []string) {
		list, err := f.Execs(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		return ids
	}
	ended("out:early ", "child:late", "exit:3")
	for range 6 {
		ended("exit:0")
	}
	eventually(t, "the others are dropped", func() bool { return strings.Join(kept(), " ") == "1 6 7" })
	f.engine.poke(t, id)
	var out strings.Builder
	eventually(t, "the late word is kept", func() bool {
		out.Reset()
		if err := f.Logs(ctx, "s", LogOptions{Exec: "1"}, &out, nil); err != nil {
			t.Fatal(err)
		}
		return out.String() == "early late"
	})
	f.engine.poke(t, id) // it ends
	eventually(t, "it is dropped as the oldest", func() bool { return strings.Join(kept(), " ") == "6 7" })
}

// TestLingeringIsBounded: the oldest pipes are let go of.
func TestLingeringIsBounded(t *testing.T) {
	s := &sandbox{}
	for n := range uint32(6) {
		s.past = append(s.past, &execution{record: execRecord{Number: n}, lingers: n%2 == 0})
	}
	for most, want := range map[int]int{0: 3, 2: 1, 3: 0, 9: 0} {
		oldest := s.lingering(most)
		if len(oldest) != want || want > 0 && oldest[0].number() != 0 {
			t.Errorf("above %d: %v", most, oldest)
		}
	}
}
