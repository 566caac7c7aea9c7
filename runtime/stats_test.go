package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// uses makes the kernel count this for a sandbox.
func (f *fixture) uses(t *testing.T, id string, cpu time.Duration, memory int64) {
	t.Helper()
	for name, text := range map[string]string{
		"cpu.stat": fmt.Sprintf("usage_usec %d\n", cpu.Microseconds()), "memory.current": fmt.Sprintln(memory), "memory.peak": fmt.Sprintln(2 * memory),
	} {
		if err := os.WriteFile(filepath.Join(f.engine.cgroups, id, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// once is the first answer of Stats.
func (f *fixture) once(ctx context.Context, sel StatsSelection) (list []SandboxStats, err error) {
	return list, f.Stats(ctx, sel, false, func(_ time.Time, l []SandboxStats) error { list = l; return nil })
}

func TestStatsOfSandboxes(t *testing.T) {
	f := newFixture(t)
	busy := f.session(t, plan.CreateRequest{Name: "busy"})
	f.session(t, plan.CreateRequest{Name: "idle"})
	f.uses(t, busy.ID, time.Millisecond, 1<<20)
	if err := os.WriteFile(filepath.Join(f.engine.cgroups, busy.ID, "cgroup.procs"), []byte("1000001\n1000002\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.sampleAll(t.Context())
	time.Sleep(observe.CPUSpan + 100*time.Millisecond)
	f.uses(t, busy.ID, time.Hour, 3<<20) // more than there are CPUs
	f.sampleAll(t.Context())
	list, err := f.once(callerContext(t), StatsSelection{})
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	s := list[0]
	if s.Name != "busy" || s.State != StateRunning || s.CPUPercent < 100_000 || s.CPU != time.Hour || s.MemoryBytes != 3<<20 || s.PeakMemoryBytes == nil || *s.PeakMemoryBytes != 6<<20 ||
		s.MemoryLimitBytes == 0 || s.PIDs != 1 || s.PIDsLimit == 0 || s.MilliCPU == 0 || s.Processes == nil || *s.Processes != 2 || s.IOReadBytes == nil || *s.IOReadBytes != 10 || s.CPUPressure != nil {
		t.Errorf("%+v", s)
	}
	h, err := f.History(callerContext(t), "busy")
	if err != nil || len(h.Samples) != 2 || h.Samples[1].MemoryBytes != 3<<20 || h.Samples[1].CPUPercent < 100_000 || time.Since(h.Samples[1].Time) > time.Minute || h.MemoryLimitBytes != s.MemoryLimitBytes {
		t.Errorf("%+v, %v", h, err)
	}
	// What has ended is told of by name, with what it used in all.
	if _, err := f.Stop(callerContext(t), "busy", new(time.Duration)); err != nil {
		t.Fatal(err)
	}
	if list, err = f.once(callerContext(t), StatsSelection{}); err != nil || len(list) != 1 || list[0].Name != "idle" {
		t.Errorf("the live ones: %+v, %v", list, err)
	}
	ended := 0
	err = f.Stats(callerContext(t), StatsSelection{Refs: []string{"busy", busy.ID}}, true, func(_ time.Time, l []SandboxStats) error { list, ended = l, ended+1; return nil })
	if err != nil || ended != 1 || len(list) != 1 || list[0].CPU != time.Hour || list[0].MemoryBytes != 0 || list[0].PIDs != 0 || list[0].Processes == nil || *list[0].Processes != 0 || list[0].State != StateExited || list[0].CPUPercent != 0 {
		t.Errorf("the ended one, told %d times: %+v, %v", ended, list, err)
	}
	if h, err = f.History(callerContext(t), "busy"); err != nil || len(h.Samples) < 2 {
		t.Errorf("%+v, %v", h, err)
	}
}

// The first answer about a new sandbox waits for no sample.
func TestStatsOfNewSandbox(t *testing.T) {
	f := newFixture(t)
	id := f.session(t, plan.CreateRequest{}).ID
	f.uses(t, id, 0, 7<<20)
	list, err := f.once(callerContext(t), StatsSelection{Refs: []string{id}})
	if err != nil || len(list) != 1 || list[0].MemoryBytes != 7<<20 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A stream goes on with what comes and goes, until its caller has enough.
func TestStatsStream(t *testing.T) {
	f := newFixture(t)
	f.session(t, plan.CreateRequest{Name: "one"})
	enough := errors.New("enough")
	var seen []int
	err := f.Stats(callerContext(t), StatsSelection{}, true, func(_ time.Time, l []SandboxStats) error {
		if seen = append(seen, len(l)); len(seen) == 2 {
			return enough
		}
		f.session(t, plan.CreateRequest{Name: "two"})
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(seen, []int{1, 2}) {
		t.Errorf("%v, %v", seen, err)
	}
}

// Nobody is told of what is somebody else's.
func TestStatsOfOthers(t *testing.T) {
	f := newFixture(t)
	id := f.session(t, plan.CreateRequest{Name: "roots"}).ID
	rule := peer.Rule{UIDs: []uint32{1000}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	user := peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 0))
	if list, err := f.once(user, StatsSelection{}); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := f.once(callerContext(t), StatsSelection{}); err != nil || len(list) != 1 {
		t.Errorf("root: %+v, %v", list, err)
	}
	if _, err := f.once(user, StatsSelection{Refs: []string{id}}); sbxerr.Of(err) != sbxerr.NotFound {
		t.Errorf("by its ID: %v", err)
	}
	if _, err := f.History(user, id); sbxerr.Of(err) != sbxerr.NotFound {
		t.Errorf("history: %v", err)
	}
	if _, err := f.once(t.Context(), StatsSelection{}); err == nil {
		t.Error("a call without a caller is answered")
	}
}
