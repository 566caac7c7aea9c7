package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
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

// errProcessEnded is why nobody goes on with a process that is no more.
var errProcessEnded = errors.New("it has ended")

// openKnown opens the process that had this pid and began at this tick of the
// host's clock. One that ended is errProcessEnded, also where its pid is another's
// now.
func openKnown(pid int, began uint64) (*process, error) {
	const op = "runtime.process"
	p, err := openProcess(pid)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Init, op, orProcessEnded(err))
	}
	state, at, err := processStat(pid) // of the process that p holds, or of nothing that began then
	switch {
	case err != nil:
		err = orProcessEnded(err)
	case state == 'Z' || state == 'X' || at != began:
		err = errProcessEnded
	default:
		return p, nil
	}
	return nil, sbxerr.Wrap(sbxerr.Init, op, errors.Join(fmt.Errorf("open process %d: %w", pid, err), p.close()))
}

// orProcessEnded adds to an error that there is no process with the pid, where it
// says so: pidfd_open(2) says EINVAL, or ENOENT, of one that is a thread's by now.
func orProcessEnded(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: %w", errProcessEnded, err)
	}
	return err
}

// processStat returns the state of a process and when it began, in ticks since
// the boot (proc_pid_stat(5), fields 3 and 22).
func processStat(pid int) (state byte, began uint64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ") // the name may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("%q is not the state of a process", data)
	}
	began, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], began, err
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

// past is a deadline that has been passed: it wakes whoever waits.
var past = time.Unix(1, 0)

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

// ended reports whether PID 1 has ended.
func (p *process) ended() bool {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return false
	}
	var over bool
	return raw.Control(func(fd uintptr) { over = readable(int(fd)) }) == nil && over
}

// readable reports whether a pidfd says that its process ended.
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
