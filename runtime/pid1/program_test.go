package pid1

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Copies are of what was read, cannot be made over another file, and what they are
// made of cannot be changed.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "program"), filepath.Join(dir, "copy")
	if _, err := ReadProgram(path); sbxerr.Of(err) != sbxerr.Binary {
		t.Errorf("a program that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProgram(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := os.WriteFile(path, []byte("that of an upgrade"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.memory.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("it can be changed: %v", err)
	}
	for range 2 {
		if err := p.CopyTo(target); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(target)
		st, statErr := os.Stat(target)
		if err != nil || statErr != nil || string(data) != "program" || st.Mode().Perm() != 0o555 {
			t.Errorf("the copy is %q, %v, %v", data, st, errors.Join(err, statErr))
		}
		if err := p.CopyTo(target); sbxerr.Of(err) != sbxerr.StateDir || !errors.Is(err, os.ErrExist) {
			t.Errorf("a copy over another: %v", err)
		}
		if err := os.Remove(target); err != nil {
			t.Fatal(err)
		}
	}
}
