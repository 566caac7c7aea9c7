package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A direction copies with buffers that it holds only while there are bytes, and once it
// has moved spliceAfter bytes it goes over to splice(2), with a pipe that it holds no
// longer: a connection that waits costs two sockets and no buffer.
const (
	spliceAfter = 512 << 10
	bufferSize  = 32 << 10
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// tally is what a relay moved.
type tally struct {
	sent, received int64 // bytes from the one side, and from the other
	broken         bool  // one direction failed
}

// relay is a connection of two sides. What the one said, and was heard of the other,
// already, goes first.
type relay struct {
	one, other  *net.TCPConn
	said, heard []byte
	seat        *seat
}

// start carries bytes both ways until both sides have said that they are done,
// or one fails, which ends both; then it calls over. Each way has a goroutine of
// its own that calls little: one that resolved and dialled has a grown stack, which a
// connection that waits would keep for as long as it lives.
func (r relay) start(all *sync.WaitGroup, over func(tally)) {
	var left atomic.Int32
	var broken atomic.Bool
	var c tally
	left.Store(2)
	way := func(dst, src *net.TCPConn, said []byte, moved *int64) {
		n, err := carry(dst, src, said, r.seat)
		*moved = n
		if err != nil {
			broken.Store(true)
		}
		if left.Add(-1) == 0 {
			c.broken = broken.Load()
			over(c)
		}
	}
	all.Go(func() { way(r.other, r.one, r.said, &c.sent) })
	all.Go(func() { way(r.one, r.other, r.heard, &c.received) })
}

// carry moves said and then all that src sends to dst, tells dst of the end, and returns how
// much it was. A failure resets both, so that the other direction ends too.
func carry(dst, src *net.TCPConn, said []byte, s *seat) (int64, error) {
	moved, err := move(dst, src, said, s)
	if err == nil {
		err = dst.CloseWrite()
	}
	if errors.Is(err, unix.ENOTCONN) {
		err = nil // dst went away in between, and had all
	}
	if err != nil {
		reset(dst)
		reset(src)
	}
	return moved, err
}

func move(dst, src *net.TCPConn, said []byte, s *seat) (int64, error) {
	var moved int64
	if len(said) > 0 {
		n, err := dst.Write(said)
		if moved += int64(n); err != nil {
			return moved, err
		}
	}
	for due := int64(spliceAfter); ; {
		n, err := some(dst, src, moved, s.room)
		moved += n
		if errors.Is(err, io.EOF) {
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
		if moved >= due {
			s.tend()
			due = moved + spliceAfter
		}
	}
}

// some moves what src has, after so much was moved.
func some(dst, src *net.TCPConn, moved int64, r *room) (int64, error) {
	if moved < spliceAfter {
		return moveSome(dst, src)
	}
	return r.moveMuch(dst, src)
}

// moveSome waits until src has bytes, and only then takes a buffer.
func moveSome(dst, src *net.TCPConn) (int64, error) {
	buffer, n, err := take(src)
	if buffer != nil {
		defer buffers.Put(buffer)
	}
	if err != nil {
		return 0, err
	}
	n, err = dst.Write(buffer[:n])
	return int64(n), err
}

// take reads what src has, when it has something. The buffer, nil where none was
// needed, goes back to buffers.
func take(src *net.TCPConn) (buffer *[bufferSize]byte, n int, err error) {
	raw, err := src.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		buffer = buffers.Get().(*[bufferSize]byte)
		for {
			if n, readErr = unix.Read(int(fd), buffer[:]); !errors.Is(readErr, unix.EINTR) {
				break
			}
		}
		if errors.Is(readErr, unix.EAGAIN) {
			buffers.Put(buffer)
			buffer = nil
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return buffer, 0, err
	case readErr != nil:
		return buffer, 0, readErr
	case n == 0:
		return buffer, 0, io.EOF
	}
	return buffer, n, nil
}
