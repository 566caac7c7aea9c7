package proxy

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes of buffers, in bytes of data. The kernel counts its own overhead, too, and takes
// twice as much.
const (
	nearBuffer = 512 << 10 // of the side in a sandbox, which is no way off: more makes nothing faster
	narrow     = 128 << 10
	narrowest  = 64 << 10 // see below
)

// Loopback has segments of 64 kB. A peer that was offered a window of that size when it
// connected may use all of it at once, and what is more than its buffer takes is dropped;
// later it sends halves of it, and waits where two do not fit. The same is so where the
// buffer of what is sent does not hold what the peer acknowledges at once. Both cost a
// fifth of a second or more at a time.

// farBuffer is, overhead included, where the kernel stops to adapt the buffer of what
// comes from far off: more than 300 Mbit/s at 100 ms. It stops earlier by itself where
// tcp_rmem is as it comes with Linux.
const farBuffer = 8 << 20

// socket is one side of a connection. One that is near leads into a sandbox.
type socket struct {
	conn *net.TCPConn
	near bool
}

// begin bounds s, which is new and of a wide connection.
func (s socket) begin() error {
	if s.near {
		return s.fix(nearBuffer)
	}
	return nil // the kernel adapts it
}

// widen lets s, which was narrow, have all that it can use. The kernel adapts a far one,
// once it sees more come at a time than ever before: so that needs a little more.
func (s socket) widen() error {
	if s.near {
		return s.fix(nearBuffer)
	}
	return errors.Join(s.fix(2*narrow), s.lock(0))
}

// fix gives both buffers of s this size, and lets its window use what there is.
func (s socket) fix(size int) error {
	return control(s.conn, func(fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, size),
		)
	})
}

// settle ends the adapting of s where that has got far enough.
func (s socket) settle() error {
	m, err := s.memory()
	if s.near || err != nil || m[unix.SK_MEMINFO_RCVBUF] < farBuffer {
		return err
	}
	const receiving = 2 // SOCK_RCVBUF_LOCK
	return s.lock(receiving)
}

// lock says which buffers of s the kernel does not adapt.
func (s socket) lock(which int) error {
	return control(s.conn, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK, which) })
}

// queued is how much memory the kernel holds for what s has received and not given
// out, and for what was sent and not acknowledged. It is 0 for one that is closed.
func (s socket) queued() int {
	m, err := s.memory()
	if err != nil {
		return 0
	}
	return int(m[unix.SK_MEMINFO_RMEM_ALLOC]) + int(m[unix.SK_MEMINFO_WMEM_QUEUED])
}

// drain waits until no more than rest is queued for the peer of s, which was told of the
// end, or s is reset. The kernel says when the last byte was acknowledged.
func (s socket) drain(rest int) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(uintptr) bool { return s.queued() <= rest }) // fails where it is closed
}

// memory is the first part of SO_MEMINFO (sock_diag(7), SK_MEMINFO_*).
func (s socket) memory() (m [8]uint32, err error) {
	err = control(s.conn, func(fd int) error {
		answer, err := unix.GetsockoptICMPv6Filter(fd, unix.SOL_SOCKET, unix.SO_MEMINFO) // any structure with room for it
		if err == nil {
			m = answer.Data
		}
		return err
	})
	return m, err
}

// control runs do with the descriptor of c.
func control(c syscall.Conn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = do(int(fd)) })
	return errors.Join(err, inner)
}
