package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

func saveNothing(file string) (plan.Snapshot, error) {
	return plan.Snapshot{SandboxName: "box"}, os.WriteFile(file, nil, 0o600)
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s, k := NewStore(dir), Key{Owner: 7, Name: "a"}
	if _, err := s.Create(k, saveNothing); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(k, saveNothing); !errors.Is(err, sbxerr.Exists) {
		t.Errorf("a name that is taken: %v", err)
	}
	failed := errors.New("failed")
	if _, err := s.Create(Key{Owner: 7, Name: "b"}, func(string) (plan.Snapshot, error) { return plan.Snapshot{}, failed }); !errors.Is(err, failed) {
		t.Errorf("one that cannot be saved: %v", err)
	}
	if kept, err := s.Keep(k, saveNothing); err != nil || !strings.HasPrefix(kept.Name, "a-") || !kept.Unnamed {
		t.Errorf("kept as %q: %v", kept.Name, err)
	}
	if list, err := s.List(); err != nil || len(list) != 2 || list[0].SandboxName != "box" {
		t.Errorf("listed %+v, %v", list, err)
	}
	if err := os.WriteFile(filepath.Join(s.path(k), metaName), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(k); err == nil || !strings.Contains(err.Error(), "of version 2; this daemon knows 1") {
		t.Errorf("one of a later version: %v", err)
	}
	if err := s.Remove(k); err != nil {
		t.Error(err)
	}
	if err := s.Remove(k); !errors.Is(err, sbxerr.SnapshotNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
}

// What an earlier process left half done goes, and what this one works on stays.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	if err := os.Mkdir(filepath.Join(dir, ".1"), 0o700); err != nil {
		t.Fatal(err)
	}
	at, done := s.begin()
	defer done()
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(at) {
		t.Errorf("left %v, %v", left, err)
	}
}
