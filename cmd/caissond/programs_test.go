package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Programs of another version are not for this daemon.
func TestFindPrograms(t *testing.T) {
	prefix := t.TempDir()
	bin, libexec := filepath.Join(prefix, "bin"), filepath.Join(prefix, "libexec", "caisson")
	old, current := filepath.Join(libexec, "1.0"), filepath.Join(libexec, "1.1")
	for _, dir := range []string{bin, old, current} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(old, "caisson-init"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := findProgramsFrom(bin, "1.1"); got != bin {
		t.Errorf("without programs: %q, want %q", got, bin)
	}
	for _, dir := range []string{libexec, current, bin} { // the later wins
		if err := os.WriteFile(filepath.Join(dir, "caisson-init"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := findProgramsFrom(bin, "1.1"); got != dir {
			t.Errorf("got %q, want %q", got, dir)
		}
	}
}
