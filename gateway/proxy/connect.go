package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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

// connectInside connects f, a socket that does not block, to an address in the
// namespace that it was opened in. It takes f over.
func connectInside(ctx context.Context, f *os.File, to netip.AddrPort) (_ *net.TCPConn, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Write(func(fd uintptr) bool {
		var address unix.Sockaddr
		if address, inner = sockaddrFor(int(fd), to); inner != nil {
			return true
		}
		inner = unix.Connect(int(fd), address)
		return !errors.Is(inner, unix.EINPROGRESS) && !errors.Is(inner, unix.EALREADY) && !errors.Is(inner, unix.EINTR)
	})
	if err == nil && !errors.Is(inner, unix.EISCONN) { // how a connection that took its time is told
		err = inner
	}
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
