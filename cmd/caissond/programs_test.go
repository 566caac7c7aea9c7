package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindPrograms(t *testing.T) {
	prefix := t.TempDir()
	bin, libexec := filepath.Join(prefix, "bin"), filepath.Join(prefix, "libexec", "caisson")
	for _, dir := range []string{bin, libexec} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := findProgramsFrom(bin); got != bin {
		t.Errorf("without programs: %q, want %q", got, bin)
	}
	for _, dir := range []string{libexec, bin} { // beside the daemon wins
		if err := os.WriteFile(filepath.Join(dir, "caisson-init"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := findProgramsFrom(bin); got != dir {
			t.Errorf("got %q, want %q", got, dir)
		}
	}
}
