package dns

import (
	"encoding/binary"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// stamped reads datagrams with the time at which the kernel took them, where the
// socket was made to tell it (SO_TIMESTAMPNS): they may have waited, and whoever
// sent them may be gone.
type stamped struct{ *net.UDPConn }

// stampedAddr is who sent a datagram, and when; the zero time is not known.
type stampedAddr struct {
	net.Addr
	at time.Time
}

// ReadFrom implements net.PacketConn. The address is a stampedAddr.
func (c stamped) ReadFrom(p []byte) (int, net.Addr, error) {
	var oob [stampSpace]byte
	n, oobn, _, from, err := c.ReadMsgUDP(p, oob[:])
	if err != nil {
		return n, nil, err
	}
	return n, stampedAddr{from, stampIn(oob[:oobn])}, nil
}

// WriteTo implements net.PacketConn.
func (c stamped) WriteTo(p []byte, to net.Addr) (int, error) {
	if s, ok := to.(stampedAddr); ok {
		to = s.Addr
	}
	return c.UDPConn.WriteTo(p, to)
}

// stampSpace is the room that the kernel's message takes, and more.
const stampSpace = 64

// stampIn reads the time out of what came with a datagram.
func stampIn(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Time{}
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 { // struct timespec
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Time{}
}

// withStamps is pc with times, if it is a socket.
func withStamps(pc net.PacketConn) net.PacketConn {
	if c, ok := pc.(*net.UDPConn); ok {
		return stamped{c}
	}
	return pc
}

// stampOf is when the kernel took what addr sent; the zero time is not known.
func stampOf(addr net.Addr) time.Time {
	if s, ok := addr.(stampedAddr); ok {
		return s.at
	}
	return time.Time{}
}
