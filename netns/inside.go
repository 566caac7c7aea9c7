package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenSockets opens n TCP sockets in the namespace at path, which are not connected
// and do not block. Whoever they are passed to can connect each of them once, to
// what listens inside, and needs no right for it.
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
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
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
