package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// AttachBPF mounts a bpffs at dir, which it makes if it is not there: the daemon pins its
// BPF programs there. One that is mounted already stays as it is.
func AttachBPF(dir string) error {
	const op = "mount.bpf"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	mounted, err := IsPoint(dir)
	if err != nil || mounted {
		return sbxerr.Wrap(sbxerr.Mount, op, err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("caisson", dir, "bpf", flags, "mode=0700"); err != nil {
		return sbxerr.Wrap(sbxerr.Mount, op, fmt.Errorf("mount a bpffs at %q: %w", dir, err))
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return sbxerr.Wrap(sbxerr.Mount, op, errors.Join(fmt.Errorf("make %q private: %w", dir, err), Detach(dir)))
	}
	return nil
}
