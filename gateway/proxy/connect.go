package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connectInside connects f, a socket that does not block, to a port of 127.0.0.1 in
// the namespace that it was opened in. It takes f over.
func connectInside(ctx context.Context, f *os.File, port uint16) (_ *net.TCPConn, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = raw.Write(func(fd uintptr) bool {
		inner = unix.Connect(int(fd), &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
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
