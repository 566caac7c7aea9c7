package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// light reports whether args begin with a verb of this program. All others are of the whole
// one, and so is what tells of all verbs.
func (a *App) light(args []string) bool {
	return len(args) > 0 && args[0] != "completion" && slices.ContainsFunc(a.Verbs(), func(v Verb) bool { return v.Name == args[0] })
}

// errWhole is for a flag that the whole program has.
var errWhole = errors.New("the whole program has it")

// becomeWhole executes the program that has everything, under the name of this one: it tells
// others what to call.
func (a *App) becomeWhole(args []string) error {
	self, err := a.Executable()
	if err != nil {
		return sbxerr.Wrap(sbxerr.Binary, "caisson.whole", err)
	}
	path, err := findBeside(self, a.Program.Whole, a.Program.Version)
	if err != nil {
		return err
	}
	return sbxerr.Wrap(sbxerr.Binary, "caisson.whole", a.Exec(path, append([]string{self}, args...), os.Environ()))
}

// executable is the path of the program that was called: the whole one was executed under the
// name of another.
func (p Program) executable() (string, error) {
	if p.Whole == "" && filepath.IsAbs(os.Args[0]) {
		return os.Args[0], nil
	}
	return os.Executable()
}

// findBeside finds a program that belongs to self: beside it, or in libexec/caisson beside its
// directory, of the same version first.
func findBeside(self, name, version string) (string, error) {
	dir := filepath.Dir(self)
	libexec := filepath.Join(dir, "..", "libexec", "caisson")
	for _, path := range []string{filepath.Join(dir, name), filepath.Join(libexec, version, name), filepath.Join(libexec, name)} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", sbxerr.New(sbxerr.Binary, "caisson.whole", "%s is neither beside %s nor in libexec/caisson", name, self)
}
