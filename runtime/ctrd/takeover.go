package ctrd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

// endOldServer ends every containerd that runs with our configuration file: one
// whose daemon was killed, and which still holds the socket or the database. It
// refuses to go on if somebody else listens on our socket.
func endOldServer(ctx context.Context, p Paths) error {
	if err := endAll(ctx, func(pid int) bool { return isServer(pid, p.config()) }); err != nil {
		return sbxerr.Wrap(sbxerr.EngineDown, "ctrd.takeover", fmt.Errorf("end containerd of an earlier daemon: %w", err))
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

// endOldCalls ends the calls of the shim program that a server with our socket made
// and did not live to see answered. One that went on late would take the socket of a
// shim that has begun since, and the server after that would not find that shim.
func endOldCalls(ctx context.Context, p Paths) error {
	if err := endAll(ctx, func(pid int) bool { return isCall(pid, p.Socket()) }); err != nil {
		return fmt.Errorf("end calls of an earlier containerd: %w", err)
	}
	return nil
}

// isCall says whether pid is a call of the shim program, no shim, by the server at
// address.
func isCall(pid int, address string) bool {
	if name := program(pid); name != ShimProgram && name != shimcall.Program {
		return false
	}
	args := strings.Split(string(arguments(pid)), "\x00")
	if len(args) < 2 {
		return false
	}
	c, ok := shimcall.Parse(args[1 : len(args)-1])
	return ok && c.Address == address
}

// endAll kills all that match.
func endAll(ctx context.Context, match func(pid int) bool) error {
	pids, err := processes(match)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := endProcess(ctx, pid, match); err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}

// endProcess kills pid, as [Supervisor] says why of a server. The pidfd is taken first
// and the identity checked after, so a reused pid cannot be hit.
func endProcess(ctx context.Context, pid int, match func(pid int) bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(fd)
	if !match(pid) {
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
