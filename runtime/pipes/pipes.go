// Package pipes makes the pipes between the daemon and a command.
package pipes

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Pipes connect the daemon with a command. The inside ends go to PID 1; what
// the command writes reaches the daemon with no process in between.
type Pipes struct {
	Inside                [3]*os.File // stdin, stdout, stderr
	Stdin, Stdout, Stderr *os.File    // nil where the command has no such stream of its own
	Staging               *os.File    // both ends of the pipe through which input goes; nil without stdin
}

// Owner is who a command runs as, by ids of the host.
type Owner struct{ UID, GID int }

// New makes the pipes of a command whose streams belong to owner. It may then open
// /dev/stdin, /dev/stdout and /dev/stderr, which lead to them. nil leaves them root's, as
// PID 1 alone uses those of a command on a terminal.
func New(withStdin, withStderr bool, owner *Owner) (_ *Pipes, err error) {
	p := &Pipes{}
	defer func() {
		if err != nil {
			err = errors.Join(sbxerr.Wrap(sbxerr.Internal, "runtime.pipes", err), p.CloseInside(), p.CloseOutside())
		}
	}()
	if withStdin {
		if p.Inside[0], p.Stdin, err = newStream(1, owner); err != nil {
			return nil, err
		}
		if p.Staging, err = newStaging(); err != nil {
			return nil, err
		}
	}
	if p.Inside[1], p.Stdout, err = newStream(0, owner); err != nil {
		return nil, err
	}
	if !withStderr {
		return p, nil
	}
	if p.Inside[2], p.Stderr, err = newStream(0, owner); err != nil {
		return nil, err
	}
	return p, nil
}

// newStream makes a pipe that belongs to owner. Its two ends are one inode, which
// keeps its owner for as long as one of them is open.
func newStream(own int, owner *Owner) (inside, outside *os.File, err error) {
	inside, outside, err = newPipe(own)
	if err != nil || owner == nil {
		return inside, outside, err
	}
	if err := inside.Chown(owner.UID, owner.GID); err != nil {
		return nil, nil, errors.Join(err, Close(inside, outside))
	}
	return inside, outside, nil
}

// newPipe makes a pipe whose end with this index, 0 to read and 1 to write, is
// the daemon's. Only that one is polled: os.Pipe would make both non-blocking
// and have the poller look at them, a dozen system calls for each command.
func newPipe(own int) (inside, outside *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if _, err := unix.FcntlInt(uintptr(fds[own]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return nil, nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[1-own]), "|inside"), os.NewFile(uintptr(fds[own]), "|outside"), nil
}

// newStaging makes a pipe of which one non-blocking descriptor is both ends.
func newStaging() (*os.File, error) {
	r, w, err := newPipe(0)
	if err != nil {
		return nil, err
	}
	defer Close(r, w) // nothing was written
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", r.Fd()), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open pipe", err)
	}
	return os.NewFile(uintptr(fd), "|staging"), nil
}

// CloseInside closes the ends of the command.
func (p *Pipes) CloseInside() error { return Close(p.Inside[:]...) }

// CloseOutside closes the ends of the daemon.
func (p *Pipes) CloseOutside() error { return Close(p.Stdin, p.Stdout, p.Stderr, p.Staging) }

// Close closes the files that are there.
func Close(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
