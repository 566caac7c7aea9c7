package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The addresses inside on which servers listen. Development servers listen on what
// "localhost" is resolved to, which may be the second alone.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// sockaddrFor is how a socket of fd's family is told to.
func sockaddrFor(fd int, to netip.AddrPort) (unix.Sockaddr, error) {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	switch {
	case err != nil:
		return nil, err
	case family == unix.AF_INET6:
		return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}, nil
	case to.Addr().Is4():
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}, nil
	}
	return nil, unix.EAFNOSUPPORT
}

// A server whose queue of connections is full drops the packet that asks for one more.
// The kernel repeats it only after a second, and for all waiting sockets at the same
// moment: most of them then believe that they are connected, while the server has no
// room for them. So connections to one port begin one after the other, and the first in
// the line asks again after these times.
const (
	firstWait = 5 * time.Millisecond // a busy host takes that long to answer
	lastWait  = 50 * time.Millisecond
)

// errLate is of a socket that was connected just when it was taken back. It is of no use
// any more.
var errLate = errors.New("it was connected too late")

// line lets one connection at a time begin.
type line chan struct{}

// connectInside connects f, a socket that does not block, to an address in the
// namespace that it was opened in, when it is the first in the line. It takes f over.
func (l line) connectInside(ctx context.Context, f *os.File, to netip.AddrPort) (_ *net.TCPConn, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
		return nil, os.ErrDeadlineExceeded
	}
	err = persist(ctx, f, to)
	<-l
	if err != nil {
		return nil, err
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a socket of the sandbox is a %T", c), c.Close())
	}
	if tcp.LocalAddr().String() == tcp.RemoteAddr().String() { // of ports that are picked for callers, one can meet itself
		return nil, errors.Join(unix.ECONNREFUSED, tcp.Close())
	}
	return tcp, nil
}

// persist connects f, and asks again and again until the server answers or ctx ends.
func persist(ctx context.Context, f *os.File, to netip.AddrPort) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		if err := f.SetWriteDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		err := try(raw, to)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if connected, err := takeBack(raw, to); connected || err != nil {
			return err
		}
	}
	return os.ErrDeadlineExceeded
}

// try connects until the socket's deadline.
func try(raw syscall.RawConn, to netip.AddrPort) error {
	var inner error
	err := raw.Write(func(fd uintptr) bool {
		inner = askFor(int(fd), to)
		return !pending(inner)
	})
	return cmp.Or(err, inner)
}

// askFor begins to connect, or tells how that went.
func askFor(fd int, to netip.AddrPort) error {
	address, err := sockaddrFor(fd, to)
	if err != nil {
		return err
	}
	err = unix.Connect(fd, address)
	if errors.Is(err, unix.EISCONN) { // how a connection that took its time is told
		return nil
	}
	return err
}

func pending(err error) bool {
	return errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EALREADY) || errors.Is(err, unix.EINTR)
}

// takeBack makes a socket that is not connected yet one that was never used, and
// reports whether it was connected in the last moment.
func takeBack(raw syscall.RawConn, to netip.AddrPort) (connected bool, err error) {
	controlErr := raw.Control(func(fd uintptr) {
		if err = askFor(int(fd), to); !pending(err) {
			connected = err == nil
			return
		}
		if err = unix.Shutdown(int(fd), unix.SHUT_RDWR); err != nil { // which disconnects in this state
			return
		}
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State != tcpClose {
			err = errLate
		}
	})
	return connected, cmp.Or(controlErr, err)
}

// tcpClose is the state of a TCP socket that is not connected (TCP_CLOSE, tcp_states.h).
const tcpClose = 7
