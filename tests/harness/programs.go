package harness

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// ProgramsWithout returns a directory with links to the programs under test, but
// for those that are named: a test puts others in their place.
func ProgramsWithout(t testing.TB, missing ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "caisson-bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	programs, err := os.ReadDir(filepath.Dir(Bin(t, "caissond")))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if slices.Contains(missing, p.Name()) {
			continue
		}
		if err := os.Symlink(Bin(t, p.Name()), filepath.Join(dir, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
