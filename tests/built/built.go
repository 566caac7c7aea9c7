// Package built builds the programs of this project for the tests of packages
// that need the real ones.
package built

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Program is one program of cmd/ that the tests of a package share. Its name is
// that of its folder.
type Program struct {
	Name string

	once sync.Once
	dir  string
	err  error
}

// Path builds the program the first time, as a release does, and returns where
// it is: every user may run it. It is for packages two folders below the root.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	if p.once.Do(p.build); p.err != nil {
		t.Fatal(p.err)
	}
	return filepath.Join(p.dir, p.Name)
}

func (p *Program) build() {
	if p.dir, p.err = os.MkdirTemp("", p.Name); p.err != nil {
		return
	}
	if p.err = errors.Join(os.Chmod(p.dir, 0o755), statSources(p.source())); p.err != nil { // another user runs it
		return
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", p.dir, p.source())
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.err = fmt.Errorf("%w: %s", err, out)
	}
}

func (p *Program) source() string { return "../../cmd/" + p.Name }

// statSources makes the sources of a program inputs of the test, so that go test
// does not take an old result for one of today's sources.
func statSources(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, file := range files {
		_, serr := os.Stat(file)
		err = errors.Join(err, serr)
	}
	return err
}

// Remove removes the program when the tests are over.
func (p *Program) Remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}
