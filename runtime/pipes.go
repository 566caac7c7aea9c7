package runtime

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// pipes connect the daemon with a command. The inside ends go to PID 1; what
// the command writes reaches the daemon with no process in between.
type pipes struct {
	inside                [3]*os.File // stdin, stdout, stderr
	stdin, stdout, stderr *os.File    // nil where the command has no such stream of its own
	staging               *os.File    // both ends of the pipe through which input goes; nil without stdin
}

// owner is who a command runs as, by ids of the host.
type owner struct{ uid, gid int }

// newPipes makes the pipes of a command whose streams belong to owner. It may then open
// /dev/stdin, /dev/stdout and /dev/stderr, which lead to them. nil leaves them root's, as
// PID 1 alone uses those of a command on a terminal.
func newPipes(withStdin, withStderr bool, owner *owner) (_ *pipes, err error) {
	p := &pipes{}
	defer func() {
		if err != nil {
			err = errors.Join(sbxerr.Wrap(sbxerr.Internal, "runtime.pipes", err), p.closeInside(), p.closeOutside())
		}
	}()
	if withStdin {
		if p.inside[0], p.stdin, err = newStream(1, owner); err != nil {
			return nil, err
		}
		if p.staging, err = newStaging(); err != nil {
			return nil, err
		}
	}
	if p.inside[1], p.stdout, err = newStream(0, owner); err != nil {
		return nil, err
	}
	if !withStderr {
		return p, nil
	}
	if p.inside[2], p.stderr, err = newStream(0, owner); err != nil {
		return nil, err
	}
	return p, nil
}

// newStream makes a pipe that belongs to owner. Its two ends are one inode, which
// keeps its owner for as long as one of them is open.
func newStream(own int, owner *owner) (inside, outside *os.File, err error) {
	inside, outside, err = newPipe(own)
	if err != nil || owner == nil {
		return inside, outside, err
	}
	if err := inside.Chown(owner.uid, owner.gid); err != nil {
		return nil, nil, errors.Join(err, closeAll(inside, outside))
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
	defer closeAll(r, w) // nothing was written
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", r.Fd()), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open pipe", err)
	}
	return os.NewFile(uintptr(fd), "|staging"), nil
}

func (p *pipes) closeInside() error  { return closeAll(p.inside[:]...) }
func (p *pipes) closeOutside() error { return closeAll(p.stdin, p.stdout, p.stderr, p.staging) }

func closeAll(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
