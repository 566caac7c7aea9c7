package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// What the engine keeps of one sandbox on the file system of the state directory: 117 KiB
// in 15 files. The daemon's own part lies on a tmpfs of a quarter of the memory.
const (
	stateBytes  = 128 << 10
	stateInodes = 16
)

// examineState looks at the directory of what dies with the boot.
func examineState(_ context.Context, h Host) []runtime.Check {
	dir := existing(h.State)
	found := examineSpace("state space", dir, func(s space) error { return s.forSandboxes(h.MaxSandboxes) })
	return append(found, examineStatePath(h.State)...)
}

// space is what is free on a file system.
type space struct {
	dir           string
	bytes, inodes uint64
	readonly      bool
	endless       bool // it has no fixed number of inodes
}

func spaceOf(dir string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("look for space in %q: %w", dir, err)
	}
	return space{dir: dir, bytes: st.Bavail * uint64(st.Bsize), inodes: st.Ffree, readonly: st.Flags&unix.ST_RDONLY != 0, endless: st.Files == 0}, nil
}

// below says that less is free than that.
func (s space) below(bytes, inodes uint64) error {
	if s.bytes >= bytes && (s.endless || s.inodes >= inodes) {
		return nil
	}
	return fmt.Errorf("%d MiB and %d inodes are free in %q", s.bytes>>20, s.inodes, s.dir)
}

// forSandboxes says that there is no room for so many.
func (s space) forSandboxes(n int) error {
	if err := s.below(uint64(n)*stateBytes, uint64(n)*stateInodes); err != nil {
		return fmt.Errorf("%w; %d sandboxes (sandboxes.max) need %d MiB and %d inodes", err, n, n*stateBytes>>20, n*stateInodes)
	}
	return nil
}

func examineSpace(name, dir string, judge func(space) error) []runtime.Check {
	s, err := spaceOf(dir)
	if err != nil {
		return problem(name, Unknown, sbxerr.StateDir, err)
	}
	if s.readonly {
		return problem(name, Fail, sbxerr.StateDir, fmt.Errorf("the file system of %q is mounted read-only", dir))
	}
	if err := judge(s); err != nil {
		return problem(name, Warn, sbxerr.StateDir, err)
	}
	return ok(name, fmt.Sprintf("%d MiB free in %s", s.bytes>>20, dir))
}

// examineStatePath looks whether the ids of a sandbox can pass every directory above
// the state: runc resolves paths there as one of them. The daemon opens the state itself,
// and what it makes above. Nothing is resolved so below the root directory.
func examineStatePath(state string) []runtime.Check {
	const name = "way to the state"
	above, err := filepath.EvalSymlinks(existing(state))
	if err != nil {
		return problem(name, Unknown, sbxerr.StatePath, err)
	}
	if above != "/" && existing(state) == state {
		above = filepath.Dir(above)
	}
	var errs []error
	for at := above; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return problem(name, Unknown, sbxerr.StatePath, err)
		}
		if st.Mode()&0o001 == 0 {
			errs = append(errs, fmt.Errorf("%q has mode %04o: the ids of sandboxes cannot pass it", at, st.Mode().Perm()))
		}
		if at == "/" {
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		return problem(name, Fail, sbxerr.StatePath, err)
	}
	return ok(name, above+" can be passed by the ids of sandboxes")
}
