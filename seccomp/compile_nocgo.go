//go:build !cgo

package seccomp

import (
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var errNoLibrary = errors.New("build a filter: this program was built without cgo and libseccomp")

// Compile needs libseccomp and so cgo, which this build does not have. Everything
// else of this package works without.
func (Profile) Compile(Options) (*Compiled, error) {
	return nil, sbxerr.Wrap(sbxerr.Seccomp, "seccomp.compile", errNoLibrary)
}

// CompileSpec needs it too.
func CompileSpec(*specs.LinuxSeccomp) (*Compiled, error) {
	return nil, sbxerr.Wrap(sbxerr.Seccomp, "seccomp.compile", errNoLibrary)
}

// Library tells that there is none.
func Library() (string, error) {
	return "", sbxerr.Wrap(sbxerr.Seccomp, "seccomp.library", errNoLibrary)
}

func nameOf(uint32) string { return "" }
