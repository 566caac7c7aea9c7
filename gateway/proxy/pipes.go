package proxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The kernel gives the pipes of one user 64 MB together (fs.pipe-user-pages-soft), and
// beyond that small ones. A pipe takes 1 MB, and is held by a writer that is stuck. So
// there are this many at once, and one sandbox has a part of them; what finds none is
// copied.
const (
	maxPipes     = 48
	maxRoomPipes = 8
)

// places is how many of something are taken.
type places struct{ taken atomic.Int32 }

// take takes one of at most most, which give gives back.
func (p *places) take(most int32) bool {
	if p.taken.Add(1) <= most {
		return true
	}
	p.give()
	return false
}

func (p *places) give() { p.taken.Add(-1) }

// pipes are those of this process.
var pipes places

// spliceMost is what one splice moves at most, in bytes: what goes into a pipe.
const spliceMost = 1 << 20

// moveMuch moves what src has, by splice(2) where that is much and there is a pipe. It
// holds none while it waits for src.
func (r *room) moveMuch(dst, src *net.TCPConn) (int64, error) {
	n, err := available(src)
	if err != nil {
		return 0, err
	}
	if n <= bufferSize || hasUrgent(src) || !r.pipes.take(maxRoomPipes) {
		return moveSome(dst, src)
	}
	defer r.pipes.give()
	if !pipes.take(maxPipes) {
		return moveSome(dst, src)
	}
	defer pipes.give()
	return dst.ReadFrom(&io.LimitedReader{R: src, N: int64(n)}) // no more than is there, or it would wait
}

// hasUrgent reports whether src has a byte of urgent data (tcp(7), MSG_OOB), or had one
// that is not passed yet. splice(2) stops at it, where the bytes behind it count as
// there; read(2) passes over it. One that comes later is behind what was counted.
func hasUrgent(src *net.TCPConn) bool {
	none := false
	err := control(src, func(fd int) error {
		var b [1]byte
		_, _, err := unix.Recvfrom(fd, b[:], unix.MSG_OOB|unix.MSG_PEEK|unix.MSG_DONTWAIT)
		none = errors.Is(err, unix.EINVAL)
		return nil
	})
	return err != nil || !none
}

// nowhere is where bytes would go that are counted alone. Nothing is ever written to it.
var nowhere [spliceMost]byte

// available waits until src has bytes, or its end or an error, and says how many. It is
// what FIONREAD says, without ioctl(2): tcp(7) on MSG_TRUNC.
func available(src *net.TCPConn) (n int, err error) {
	raw, err := src.SyscallConn()
	if err != nil {
		return 0, err
	}
	var asked error
	err = raw.Read(func(fd uintptr) bool {
		for {
			if n, _, asked = unix.Recvfrom(int(fd), nowhere[:], unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT); !errors.Is(asked, unix.EINTR) {
				return !errors.Is(asked, unix.EAGAIN)
			}
		}
	})
	return n, errors.Join(err, asked)
}

// quiet reports whether src has said nothing that is not read yet, not that it is done either.
func quiet(src *net.TCPConn) bool {
	return errors.Is(control(src, func(fd int) error {
		_, _, err := unix.Recvfrom(fd, nowhere[:1], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err
	}), unix.EAGAIN)
}
