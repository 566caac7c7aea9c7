package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// sourceName is the source of the daemon's own file systems in the mount table.
const sourceName = "caisson"

// AttachStage mounts a small tmpfs at dir, which it makes if it is not there:
// the place in which the daemon puts sandboxes together. A stage that is
// mounted already stays as it is.
//
// It is a mount of its own because PID 1's program lies there, and hosts mount
// /run noexec; and it is private, so that no sandbox's mounts spread to other
// mount namespaces, where they would keep a removed sandbox busy
// (mount_namespaces(7)).
func AttachStage(dir string) error {
	const op = "mount.stage"
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	mounted, err := IsPoint(dir)
	if err != nil || mounted {
		return sbxerr.Wrap(sbxerr.Mount, op, err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount(sourceName, dir, "tmpfs", flags, "mode=0711,size=25%"); err != nil {
		return sbxerr.Wrap(sbxerr.Mount, op, fmt.Errorf("mount a tmpfs at %q: %w", dir, err))
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return sbxerr.Wrap(sbxerr.Mount, op, errors.Join(fmt.Errorf("make %q private: %w", dir, err), Detach(dir)))
	}
	return nil
}

// DetachStage takes the stage away. One that still holds something stays, and
// is an error: what is in it belongs to a sandbox.
func DetachStage(dir string) error {
	const op = "mount.stage"
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if len(entries) > 0 {
		return sbxerr.New(sbxerr.StateDir, op, "%q still holds %d sandboxes", dir, len(entries))
	}
	return RemovePoint(dir)
}
