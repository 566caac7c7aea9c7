package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/finding"
)

func find(t *testing.T, features []finding.Feature, name string) finding.Feature {
	t.Helper()
	for _, f := range features {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no feature %q in %+v", name, features)
	return finding.Feature{}
}

// A v2 host that hands no controllers down yet is not changed by asking, and
// not called broken.
func TestProbeBeforeTheFirstSandboxOfV2(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids")
	f.write("cgroup/cgroup.subtree_control", "memory pids\n")
	create := find(t, probe(t.Context(), f.detect(), "caisson"), "cgroup create")
	if create.Answer != finding.Unknown || create.Needed || create.Err == nil {
		t.Errorf("got %+v; want an answer that neither promises nor refuses", create)
	}
	if _, err := os.Stat(filepath.Join(f.root(), "caisson")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group was made: %v", err)
	}
}

// Plain directories have no limit files: writing must fail, be reported, and
// leave nothing.
func TestProbeReportsWhatFails(t *testing.T) {
	f := newFakeHost(t).v1("memory", "pids")
	h := f.detect()
	features := probe(t.Context(), h, "caisson")
	for name, want := range map[string]finding.Answer{
		"cgroup layout":             finding.Yes,
		"cgroup controller memory":  finding.Yes,
		"cgroup controller cpu":     finding.No,
		"cgroup controller devices": finding.No,
		"cgroup create":             finding.No,
	} {
		got := find(t, features, name)
		if got.Answer != want || !got.Needed || (got.Err == nil) != (want == finding.Yes) {
			t.Errorf("%s: %+v; want %s", name, got, want)
		}
	}
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, "caisson")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s/caisson is left: %v", m, err)
		}
	}
}
