// Package hostaddr knows which addresses are the host's own. What connects to one meets
// the host's services, and the ports that it publishes.
//
// The kernel is asked each time, because addresses come and go. Anybody may ask it
// (rtnetlink(7), RTM_GETROUTE).
package hostaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Kernel answers for the network namespace in which it was opened.
type Kernel struct {
	mu   sync.Mutex
	fd   int
	seq  uint32
	buf  [4096]byte
	none unix.SockaddrNetlink // the kernel itself
}

// Open is done before a process gives up to make sockets. Nothing but answers to Local
// can be read from this one.
func Open() (*Kernel, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("open a netlink socket", err)
	}
	k := &Kernel{fd: fd, none: unix.SockaddrNetlink{Family: unix.AF_NETLINK}}
	if err := onlyAnswers(fd); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Close ends it.
func (k *Kernel) Close() error { return unix.Close(k.fd) }

// Local reports whether what is sent to addr stays on the host, or goes to many: all
// types of routes but unicast (ip-route(8)). Where no way leads is not here.
func (k *Kernel) Local(addr netip.Addr) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind, err := k.ask(addr)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask the kernel for the route to %s: %w", addr, err)
	}
	return kind != unix.RTN_UNICAST, nil
}

// ask returns the type of the route to addr. The kernel has answered when the question
// is sent.
func (k *Kernel) ask(addr netip.Addr) (kind byte, err error) {
	k.seq++
	if err := unix.Sendto(k.fd, question(addr, k.seq), 0, &k.none); err != nil {
		return 0, err
	}
	for {
		n, from, err := unix.Recvfrom(k.fd, k.buf[:], unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		a, err := parse(k.buf[:n])
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 || err == nil && a.seq != k.seq {
			continue // of another process, or late
		}
		return a.kind, errors.Join(err, a.refusal())
	}
}
