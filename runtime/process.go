package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// process is PID 1 of a sandbox, held by descriptor so that its number can be
// reused without harm (pidfd_open(2), Linux 5.3).
type process struct {
	pid  int
	file *os.File
}

func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Init, "runtime.process", fmt.Errorf("open process %d: %w", pid, err))
	}
	return &process{pid: pid, file: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd %d", pid))}, nil
}

func (p *process) close() error { return p.file.Close() }

// kill ends PID 1 and with it, at once and by the kernel, every process of the
// sandbox (pid_namespaces(7)). A process that is gone is success.
func (p *process) kill() error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var killErr error
	err = raw.Control(func(fd uintptr) { killErr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if errors.Is(killErr, unix.ESRCH) {
		killErr = nil
	}
	return errors.Join(err, killErr)
}

// wait returns when PID 1 has ended. All other processes of the sandbox have
// ended before: the kernel waits for them first. One caller at a time.
func (p *process) wait(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = p.file.SetReadDeadline(past) // only wakes the wait below
	})
	err = raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
	if stop() {
		return err
	}
	<-woken
	if resetErr := p.file.SetReadDeadline(time.Time{}); resetErr != nil {
		return resetErr
	}
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// readable reports whether a pidfd says that its process ended.
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
