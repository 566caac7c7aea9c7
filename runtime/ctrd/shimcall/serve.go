package shimcall

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// serve starts a shim at socket, for which the program would run itself again
// (containerd, cmd/containerd-shim-runc-v2/manager, Start). Then connections are taken
// already. A cgroup or a scheduling cookie for shims, which the program would see to as
// well, are things that the daemon never asks for.
func (c Call) serve(at Place, socket string) (err error) {
	listener, err := listen(socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	defer func() {
		if err != nil {
			os.Remove(socket)
		}
	}()
	Failpoint("start/listens")
	// The shim finds its socket by this when it ends.
	if err := os.Symlink(at.Sockets, filepath.Join(at.Bundle, "s")); err != nil {
		return err
	}
	Failpoint("start/linked")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	process, err := os.StartProcess(at.Program, c.serverArgs(at.Program), &os.ProcAttr{
		Dir:   at.Bundle,
		Env:   serverEnv(os.Environ(), c.ID),
		Files: []*os.File{null, null, null, listener},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return err
	}
	Failpoint("start/served")
	if err := endBefore(os.Getppid(), process.Pid); err != nil {
		return errors.Join(err, process.Kill())
	}
	Failpoint("start/scored")
	return process.Release()
}

// serverArgs are those by which the program is the shim itself.
func (c Call) serverArgs(program string) []string {
	return []string{program, "-namespace", c.Namespace, "-id", c.ID, "-address", c.Address}
}

// serverEnv is the environment of a shim.
func serverEnv(own []string, id string) []string {
	var env []string
	for _, e := range own {
		if !strings.HasPrefix(e, "GOMAXPROCS=") {
			env = append(env, e)
		}
	}
	return append(env, "GOMAXPROCS=4", "OTEL_SERVICE_NAME=containerd-shim-"+id)
}

// listen returns a socket that only its owner may connect to. One of a shim that was
// killed is replaced.
func listen(socket string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), socket)
	at := &unix.SockaddrUnix{Name: socket}
	err = unix.Bind(fd, at)
	if errors.Is(err, unix.EADDRINUSE) {
		err = errors.Join(os.Remove(socket), unix.Bind(fd, at))
	}
	if err == nil {
		Failpoint("start/bound")
		err = errors.Join(os.Chmod(socket, 0o600), unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", socket, errors.Join(err, f.Close()))
	}
	return f, nil
}

// endBefore has the kernel end pid before other, here containerd, when memory is
// short, if only just.
func endBefore(other, pid int) error {
	score, err := os.ReadFile(scorePath(other))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(score)))
	if err != nil {
		return fmt.Errorf("read %s: %w", scorePath(other), err)
	}
	const most = 1000 // proc_pid_oom_score_adj(5)
	return os.WriteFile(scorePath(pid), []byte(strconv.Itoa(min(n+1, most))), 0)
}

func scorePath(pid int) string { return fmt.Sprintf("/proc/%d/oom_score_adj", pid) }
