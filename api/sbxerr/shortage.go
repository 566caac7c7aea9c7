package sbxerr

import (
	"errors"
	"strings"
	"syscall"
)

// shortage is NoFiles where err says that no more files could be opened, whatever the
// step was that met it: any step of the daemon may. Else it is code.
//
// A few codes keep their meaning: there it is a process of a sandbox, the caller's own or
// the gateway that has no descriptor left.
func shortage(code Code, err error) Code {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return code
	}
	inside := code == Limits || FilePath <= code && code <= FileFailed
	if d, _ := Describe(code); inside || code == ClientIO || d.Class == ClassTimeout || strings.HasPrefix(string(code), "SBX-7") {
		return code
	}
	return NoFiles
}
