package ctrd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// endOldServer ends every containerd that runs with our configuration file: one
// whose daemon was killed, and which still holds the socket or the database. It
// refuses to go on if somebody else listens on our socket.
func endOldServer(ctx context.Context, p Paths) error {
	pids, err := processes(func(pid int) bool { return isServer(pid, p.config()) })
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "ctrd.takeover", err)
	}
	for _, pid := range pids {
		if err := endServer(ctx, pid, p.config()); err != nil {
			return sbxerr.Wrap(sbxerr.EngineDown, "ctrd.takeover", fmt.Errorf("end containerd %d of an earlier daemon: %w", pid, err))
		}
	}
	if pid, held := socketHolder(p.Socket()); held {
		return sbxerr.New(sbxerr.Locked, "ctrd.takeover", "use socket %q: process %d listens on it", p.Socket(), pid)
	}
	return nil
}

// isServer says whether pid is a containerd that was started with config.
func isServer(pid int, config string) bool {
	return program(pid) == "containerd" && bytes.Contains(arguments(pid), []byte("\x00--config\x00"+config+"\x00"))
}

// endServer kills pid, as [Supervisor] says why. The pidfd is taken first and the
// identity checked after, so a reused pid cannot be hit.
func endServer(ctx context.Context, pid int, config string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(fd)
	if !isServer(pid, config) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send SIGKILL: %w", err)
	}
	if ended, err := awaitExit(ctx, fd, endTimeout); ended || err != nil {
		return err
	}
	return fmt.Errorf("wait for its end: %w", context.DeadlineExceeded)
}

// awaitExit waits until the process of fd ended, at most wait.
func awaitExit(ctx context.Context, fd int, wait time.Duration) (bool, error) {
	const slice = 100 * time.Millisecond // in which a cancelled ctx is noticed
	for end := time.Now().Add(wait); time.Now().Before(end); {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(slice.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("poll pidfd: %w", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}

// socketHolder returns who accepts connections on a unix socket, by SO_PEERCRED.
// The pid is 0 when the kernel does not say.
func socketHolder(path string) (pid int32, held bool) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		// Anything but "no such socket" and "nobody listens" is somebody.
		return 0, !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, true
	}
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	return pid, true
}
