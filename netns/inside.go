package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenSockets opens n TCP sockets in the namespace at path, which are not connected
// and do not block. Whoever they are passed to can connect each of them once, to
// what listens inside, by IPv4 or IPv6, and needs no right for it. On a host without
// IPv6 they are of IPv4.
func OpenSockets(path string, n int) (_ []*os.File, err error) {
	const op = "netns.open_sockets"
	ns, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var sockets []*os.File
	err = ns.Do(func() error {
		for range n {
			fd, err := dualSocket()
			if err != nil {
				return fmt.Errorf("open socket: %w", err)
			}
			sockets = append(sockets, os.NewFile(uintptr(fd), "inside"))
		}
		return nil
	})
	if err != nil {
		for _, f := range sockets {
			err = errors.Join(err, f.Close())
		}
		return nil, wrapInner(op, err)
	}
	return sockets, nil
}

// dualSocket opens a socket that also takes addresses of IPv4, as ::ffff:0:0/96.
func dualSocket() (int, error) {
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := unix.Socket(unix.AF_INET6, kind, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return unix.Socket(unix.AF_INET, kind, 0)
	}
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
