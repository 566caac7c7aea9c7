package pid1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// transport carries messages, whole and in order, and the descriptors that belong
// to them. One goroutine receives while others send.
//
// A runtime that cannot pass descriptors gets a transport that keeps the files
// of a Start and copies between these and its own stream.
type transport interface {
	// send gives up with os.ErrDeadlineExceeded when PID 1 does not read.
	send(m initproto.Message, with parcel) error
	// recv returns io.EOF when PID 1 is gone.
	recv() (initproto.Message, error)
	close() error
}

// sendTimeout is how long PID 1 may leave its queue full, which holds hundreds
// of messages.
const sendTimeout = 10 * time.Second

// socket is the transport of runtimes that share the host's kernel.
type socket struct {
	conn    *net.UnixConn
	timeout time.Duration // of send
	buf     [initproto.MaxPacket]byte
}

func (s *socket) close() error { return s.conn.Close() }

func (s *socket) send(m initproto.Message, with parcel) error {
	return withFDs(with.streams, with.payload, func(fds []int) error {
		var oob []byte
		if fds = append(fds, with.held...); len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		// Several senders may each move the deadline; only ever forward.
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
			return err
		}
		_, _, err := s.conn.WriteMsgUnix(initproto.Encode(m), oob, nil)
		return err
	})
}

// recv leaves the kernel no room for control data, so descriptors that PID 1
// sends are discarded before this process could hold them, and MSG_CTRUNC tells
// (unix(7)).
func (s *socket) recv() (initproto.Message, error) {
	n, _, flags, _, err := s.conn.ReadMsgUnix(s.buf[:], nil)
	if errors.Is(err, syscall.ECONNRESET) {
		// PID 1 ended before it read all. What it had sent is still to come.
		n, _, flags, _, err = s.conn.ReadMsgUnix(s.buf[:], nil)
	}
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		return nil, violation("descriptors from PID 1")
	case err != nil && flags&unix.MSG_TRUNC == 0:
		return nil, err
	}
	return s.decode(n, flags)
}

// decode reads the message in the first n bytes of the buffer.
func (s *socket) decode(n, flags int) (initproto.Message, error) {
	if flags&unix.MSG_TRUNC != 0 {
		return nil, violation("a packet above %d bytes", initproto.MaxPacket)
	}
	m, err := initproto.Decode(s.buf[:n])
	if version, other := initproto.OtherVersion(s.buf[:n]); err != nil && other {
		return nil, versionError(version)
	}
	if err != nil {
		return nil, violation("%w", err)
	}
	return m, nil
}

// greet receives PID 1's Hello, adopts what it holds and welcomes it.
func (s *socket) greet(ctx context.Context, pid int, o Options) (held []Held, err error) {
	defer func() {
		if err != nil {
			closeHeld(held)
			held = nil
		}
	}()
	stop := interrupt(ctx, s.conn)
	hello, err := s.hello(pid)
	if err == nil && hello.Held > o.maxHeld() {
		err = violation("%d commands to adopt, at most %d are known", hello.Held, o.maxHeld())
	}
	if err == nil && hello.Held > 0 {
		held, err = s.adopt(hello.Held)
	}
	if err == nil {
		err = s.send(o.welcome(), o.files())
	}
	if !stop() {
		return held, errors.Join(errors.New("greet PID 1"), err)
	}
	return held, err
}

// hello accepts the host's pid beside 1, for a PID 1 without a namespace of its
// own, which only tests have.
func (s *socket) hello(pid int) (initproto.Hello, error) {
	m, err := s.recv()
	if err != nil {
		return initproto.Hello{}, fmt.Errorf("await hello: %w", err)
	}
	hello, ok := m.(initproto.Hello)
	switch {
	case !ok:
		return hello, violation("%T before hello", m)
	case hello.Version != initproto.Version:
		return hello, versionError(hello.Version)
	case hello.PID != 1 && hello.PID != pid:
		return hello, violation("hello from pid %d, not 1", hello.PID)
	}
	return hello, nil
}

func versionError(version uint32) error {
	return fmt.Errorf("caisson-init speaks version %d, this daemon %d", version, initproto.Version)
}

// withFDs calls f with the descriptors of files, none of which can be closed
// until f returns.
func withFDs(files []*os.File, fds []int, f func(fds []int) error) error {
	if len(files) == 0 {
		return f(fds)
	}
	var err error
	cerr := control(files[0], func(fd int) { err = withFDs(files[1:], append(fds, fd), f) })
	return errors.Join(cerr, err)
}

func control(c syscall.Conn, f func(fd int)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// lost reports whether err says that the connection is gone, rather than that
// something was wrong with it.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
