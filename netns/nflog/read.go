package nflog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is one that rules log to.
type Group uint16

// The groups.
const (
	Refused Group = 1 // what goes nowhere
	Limited Group = 2 // in the mode bridge: too many connections
)

const msgPacket = unix.NFNL_SUBSYS_ULOG << 8 // NFULNL_MSG_PACKET

const attrPayload = 9 // NFULA_PAYLOAD of linux/netfilter/nfnetlink_log.h

// Packet is what is known of one that a rule logged.
type Packet struct {
	Group       Group
	Protocol    byte           // IPPROTO_TCP and others
	Destination netip.AddrPort // without a port it is 0
	// Opens tells that it is the first one of a connection. All of protocols without
	// connections do.
	Opens bool
	// Read is a time at which it waited to be read: it was sent before, and whoever finds
	// that nothing waits does so later.
	Read time.Time
}

// Reader reads the packets that are logged on a socket. One goroutine uses Next, and one
// Missed; the others may be called by any.
type Reader struct {
	file  *os.File
	raw   syscall.RawConn
	buf   [4096]byte
	known uint32      // messages without room that Missed told of
	busy  atomic.Bool // with something that was taken from the socket
}

// NewReader reads from a copy of a socket that packets are logged to, in whatever process it is.
func NewReader(socket *os.File) (*Reader, error) {
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("copy the socket for logged packets", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or it would not be polled
		return nil, errors.Join(os.NewSyscallError("have the socket for logged packets not block", err), unix.Close(fd))
	}
	r := &Reader{file: os.NewFile(uintptr(fd), socket.Name())}
	if r.raw, err = r.file.SyscallConn(); err == nil {
		r.known, err = r.dropped() // by an earlier reader
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close ends the reading.
func (r *Reader) Close() error { return r.file.Close() }

// Next waits for a packet, until r is closed, which is an error.
func (r *Reader) Next() (Packet, error) {
	for {
		n, at, err := r.receive()
		if err != nil {
			return Packet{}, err
		}
		if p, ok := parsePacket(r.buf[:n]); ok {
			p.Read = at
			return p, nil
		}
	}
}

// Missed counts the packets for which there was no room, since it was called before, or the
// reader began. It is 0 when r is closed.
func (r *Reader) Missed() uint64 {
	now, err := r.dropped()
	if err != nil {
		return 0
	}
	missed := now - r.known
	r.known = now
	return uint64(missed)
}

// dropped counts the messages for which the socket had no room, since it was opened.
func (r *Reader) dropped() (n uint32, err error) {
	inner := r.raw.Control(func(fd uintptr) { n, err = drops(int(fd)) })
	return n, errors.Join(inner, err)
}

// receive waits for a message of the kernel, and takes it, which at that time waited. It
// has no bytes if it is another's.
func (r *Reader) receive() (n int, at time.Time, err error) {
	r.busy.Store(false) // who asks for the next one is done with the one before
	inner := r.raw.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		if _, _, err = unix.Recvfrom(int(fd), r.buf[:1], unix.MSG_DONTWAIT|unix.MSG_PEEK); err == nil {
			at = time.Now()
			r.busy.Store(true)
			n, from, err = unix.Recvfrom(int(fd), r.buf[:], unix.MSG_DONTWAIT)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); err == nil && (!ok || sender.Pid != 0) {
			n = 0
		}
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return n, at, cmp.Or(inner, err)
}

// parsePacket reads one message, which begins with a struct nfgenmsg, and reports whether it
// is about a packet. The kernel sends each by itself.
func parsePacket(b []byte) (p Packet, ok bool) {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil || len(messages) == 0 || messages[0].Header.Type != msgPacket || len(messages[0].Data) < 4 {
		return Packet{}, false
	}
	data := messages[0].Data
	p.Group = Group(binary.BigEndian.Uint16(data[2:]))
	for kind, value := range attributes(data[4:]) {
		if kind == attrPayload {
			ok = p.read(value)
		}
	}
	return p, ok
}

// attributes goes through those of a message (netlink(7)): their types, without what says
// how to read them, and what they hold.
func attributes(b []byte) func(func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) || !yield(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

// read takes what is known from the begin of a packet, and reports whether it is one.
func (p *Packet) read(b []byte) bool {
	var to netip.Addr
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		to, _ = netip.AddrFromSlice(b[16:20])
		p.Protocol, b = b[9], b[min(int(b[0]&0xf)*4, len(b)):]
	case len(b) >= 40 && b[0]>>4 == 6:
		to, _ = netip.AddrFromSlice(b[24:40])
		p.Protocol, b = b[6], b[40:]
	default:
		return false
	}
	port := uint16(0)
	if ported := p.Protocol == unix.IPPROTO_TCP || p.Protocol == unix.IPPROTO_UDP; ported && len(b) >= 4 {
		port = binary.BigEndian.Uint16(b[2:])
	}
	const syn, ack = 0x02, 0x10
	p.Opens = p.Protocol != unix.IPPROTO_TCP || len(b) > 13 && b[13]&(syn|ack) == syn
	p.Destination = netip.AddrPortFrom(to, port)
	return true
}

// Settled reports whether all that was told is read, and who reads is done with it. It needs
// no system call that reading does not need.
func (r *Reader) Settled() (settled bool, err error) {
	var first [1]byte
	inner := r.raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), first[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	})
	if errors.Is(err, unix.EAGAIN) {
		return !r.busy.Load(), inner
	}
	return false, errors.Join(inner, err)
}
