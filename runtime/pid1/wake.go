package pid1

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// makeWake makes the FIFO initproto.WakeName in the directory dirfd, which uid may
// read and nobody write. One that is there is kept: a PID 1 may be waiting on it.
func makeWake(dirfd, uid, gid int) error {
	if err := unix.Mkfifoat(dirfd, initproto.WakeName, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make fifo: %w", err)
	}
	if err := unix.Fchownat(dirfd, initproto.WakeName, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set owner of fifo: %w", err)
	}
	if err := unix.Fchmodat(dirfd, initproto.WakeName, 0o400, 0); err != nil {
		return fmt.Errorf("set mode of fifo: %w", err)
	}
	return nil
}

// wake tells a PID 1 that waits on the FIFO to look for the daemon: a writer that
// comes and goes hangs up on every reader (poll(2), POLLHUP).
func wake(dirfd int) error {
	fd, err := unix.Openat(dirfd, initproto.WakeName, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) { // nobody waits (fifo(7))
		return nil
	}
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	return unix.Close(fd)
}
