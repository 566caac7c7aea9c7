package observe_test

import (
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/usage"
)

// source is a sandbox of which the test says what it used.
type source struct {
	made time.Time
	kept *observe.Earlier
	now  observe.Reading
	gone bool
	held time.Duration
}

func (s *source) Begin() (time.Time, *observe.Earlier) { return s.made, s.kept }
func (s *source) Read() (observe.Reading, bool)        { return s.now, !s.gone }
func (s *source) HeldBack(d time.Duration)             { s.held += d }

// What was held back before an earlier daemon began is nobody's, unless it is known.
func TestHeldBack(t *testing.T) {
	for _, tt := range []struct {
		kept *observe.Earlier
		want time.Duration
	}{
		{&observe.Earlier{}, 7 * time.Second}, // a new sandbox
		{nil, 2 * time.Second},
		{&observe.Earlier{Total: observe.Total{Last: cgroups.Usage{CPUUse: cgroups.CPUUse{Throttled: 4 * time.Second}}}}, 3 * time.Second},
	} {
		src := &source{made: time.Now(), kept: tt.kept}
		var m observe.Meter
		src.now.Throttled = 5 * time.Second
		m.Measure(src)
		m.NoteCPU(src, cgroups.CPUUse{Throttled: 7 * time.Second})
		if src.held != tt.want {
			t.Errorf("%+v: held back for %v, want %v", tt.kept, src.held, tt.want)
		}
	}
}

// One that is not live has what it used in all, and a reading that fails changes nothing.
func TestUsed(t *testing.T) {
	src := &source{made: time.Now().Add(-time.Minute), kept: &observe.Earlier{}}
	src.now = observe.Reading{Usage: cgroups.Usage{MemoryBytes: 5, PIDs: 2}, SentBytes: 9}
	src.now.CPU = time.Second
	var m observe.Meter
	if now, _ := m.Used(src, true); now.Last.MemoryBytes != 5 || now.Point.SentBytes != 9 || now.Point.At < time.Minute {
		t.Errorf("%+v", now)
	}
	src.gone = true
	m.Measure(src)
	if now, cpu := m.Used(src, false); now.Last.MemoryBytes != 0 || now.Last.PIDs != 0 || now.Last.CPU != time.Second || cpu != 0 {
		t.Errorf("%+v, %v", now, cpu)
	}
	if m.Keep(func(observe.Total, *usage.Series) { t.Error("a sandbox that was never sampled is kept") }); len(m.Samples(src)) != 0 {
		t.Error("it has samples")
	}
}

// A threshold is told once when it is passed, and once when it no longer is.
func TestAlerts(t *testing.T) {
	src := &source{made: time.Now(), kept: &observe.Earlier{}}
	var m observe.Meter
	var told []string
	a := plan.Alerts{Memory: plan.Threshold{Percent: 50}, Tmpfs: plan.Threshold{Percent: 80}, Refusals: 1}
	for _, step := range []struct {
		memory  int64
		tmpfs   float64
		refused int64
	}{{40, 10, 0}, {60, 90, 1}, {70, 90, 2}, {40, 10, 3}} {
		src.now.MemoryBytes = step.memory
		m.Measure(src)
		for _, e := range m.Alerts(a, plan.Limits{MemoryBytes: 100}, mount.TmpfsUse{Point: "/tmp", Percent: step.tmpfs}, step.refused) {
			told = append(told, string(e.Type)+" "+e.Data.Limit+" "+e.Data.Reason)
		}
	}
	want := []string{
		"alert.raised memory 60.0% of the limit, the alert is above 50%", "alert.raised tmpfs 90.0% of the size of /tmp, the alert is above 80%",
		"alert.raised refusals 2 connections and lookups refused, the alert is above 1",
	}
	if !slices.Equal(told[:min(3, len(told))], want) {
		t.Errorf("%q", told)
	}
}

// What is kept is found by name and by the beginning of the ID, by those who may see it.
func TestPast(t *testing.T) {
	kept := &usage.Store{Dir: t.TempDir(), Max: 4, Age: time.Hour}
	made := time.Now().Round(0)
	var series usage.Series
	series.Add(usage.Point{At: time.Second, CPU: time.Second})
	if err := kept.Put("abcdefgh", observe.Past{Name: "box", CreatedAt: made, Owner: 5}, &series); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		ref   string
		owner uint32
		found bool
	}{{"box", 5, true}, {"abcd", 5, true}, {"abc", 5, false}, {"bo", 5, false}, {"box", 6, false}} {
		id, p, s, err := observe.Find(kept, tt.ref, 4, func(p observe.Past) bool { return p.Owner == tt.owner })
		if err != nil || (p != nil) != tt.found || tt.found && (id != "abcdefgh" || len(observe.Samples(s, p.CreatedAt)) != 1) {
			t.Errorf("%+v: %q, %+v, %v", tt, id, p, err)
		}
	}
	if e, err := observe.Again(kept, "abcdefgh", made); err != nil || e == nil || e.Series.Len() != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := observe.Again(kept, "abcdefgh", made.Add(time.Second)); err != nil || e != nil {
		t.Errorf("of another sandbox with this ID: %+v, %v", e, err)
	}
}
