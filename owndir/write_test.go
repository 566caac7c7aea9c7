package owndir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/owndir"
)

// A file is replaced whole, with what a killed process left beside it. A directory that is not
// there is an error, and the old content stays.
func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(owndir.Next(path), []byte("half of something longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "", "three"} {
		if err := owndir.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := owndir.ReadFile(path, 100); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	if _, err := os.Lstat(owndir.Next(path)); !os.IsNotExist(err) {
		t.Errorf("beside it there is %v", err)
	}
	if err := os.Mkdir(owndir.Next(path), 0o700); err != nil { // it cannot be written
		t.Fatal(err)
	}
	if err := owndir.WriteFile(path, []byte("four")); err == nil {
		t.Error("no error")
	}
	if got, err := owndir.ReadFile(path, 100); err != nil || string(got) != "three" {
		t.Errorf("after a failure %q, %v", got, err)
	}
}
