package plan

import (
	"path"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// Bounds of the input files of a command, in bytes. All of them fit one message of a caller.
const (
	maxInput  = 1 << 20
	maxInputs = 2 << 20
)

// defaultInputMode lets the user of the command read, and nobody change.
const defaultInputMode = 0o400

// InputRequest is a private file for one command. It exists as long as the command runs.
type InputRequest struct {
	// Path is where the command finds it. A name alone is one in [initproto.InputDir]. An
	// absolute path lies on a tmpfs of the sandbox, in a directory that exists.
	Path string
	Data []byte `json:"-"` // a secret: nothing keeps or prints it
	Mode *uint32
}

// scratchDirs are the tmpfs of every sandbox that its user may write to.
var scratchDirs = strings.Fields("/dev/shm /tmp /var/tmp /home")

// checkInputs reports every reason why no sandbox could have the input files of r.
func (r ExecRequest) checkInputs() error {
	if err := AtMost(len(r.Inputs), initproto.MaxInputs, "input files"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	seen, all := map[string]bool{}, 0
	for _, f := range r.Inputs {
		name, at := sbxerr.Clip(f.Path), f.target()
		switch {
		case f.Path == "" || path.Clean(at) != at || strings.ContainsRune(at, 0) || !path.IsAbs(f.Path) && strings.Contains(f.Path, "/"):
			reasons.Add(Invalid("input file %q: give a name, or a clean absolute path", name))
		case seen[at]:
			reasons.Add(Invalid("input file %q is given twice", name))
		case len(f.Data) > maxInput:
			reasons.Add(Invalid("input file %q has %d bytes, more than %d: use caisson cp, or a workspace", name, len(f.Data), maxInput))
		}
		if f.Mode != nil && (*f.Mode&^0o777 != 0 || *f.Mode&0o400 == 0) {
			reasons.Add(Invalid("input file %q: mode %#o: give permission bits with 0400 among them, such as 0400", name, *f.Mode))
		}
		seen[at] = true
		all += len(f.Data)
	}
	if all > maxInputs {
		reasons.Add(Invalid("the input files have %d bytes together, more than %d: use caisson cp, or a workspace", all, maxInputs))
	}
	return reasons.Err()
}

// target is where f is in the sandbox.
func (f InputRequest) target() string {
	if path.IsAbs(f.Path) {
		return f.Path
	}
	return initproto.InputDir + "/" + f.Path
}

// inputs plans the input files of r for a sandbox with these mounts. A file anywhere but
// on a tmpfs of the sandbox could outlive it, on the host's disk.
func (r ExecRequest) inputs(tmpfs, binds []string) (out []pid1.Input, err error) {
	var reasons sbxerr.Reasons
	for _, f := range r.Inputs {
		at, mode := f.target(), uint32(defaultInputMode)
		Override(&mode, f.Mode)
		if longest(binds, at) >= longest(append(tmpfs, scratchDirs...), at) {
			reasons.Add(Invalid("input file %q lies on no tmpfs of the sandbox: give a name, or a path below %s", sbxerr.Clip(f.Path), strings.Join(scratchDirs, ", ")))
		}
		out = append(out, pid1.Input{Path: at, Mode: mode, Data: f.Data})
	}
	return out, reasons.Err()
}

// longest is the length of the longest of dirs that holds file, 0 for none.
func longest(dirs []string, file string) (n int) {
	for _, dir := range dirs {
		if strings.HasPrefix(file, dir+"/") {
			n = max(n, len(dir))
		}
	}
	return n
}
