//go:build !cgo

package seccomp

import "github.com/caisson-run/caisson/sbxerr"

// Compile needs libseccomp and so cgo, which this build does not have. Everything
// else of this package works without.
func (Profile) Compile(Options) (*Compiled, error) {
	return nil, sbxerr.New(sbxerr.Seccomp, "seccomp.compile", "build a filter: this program was built without cgo and libseccomp")
}
