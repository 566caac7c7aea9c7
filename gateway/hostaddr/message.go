package hostaddr

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// question asks for the route to addr: a header (netlink(7)), a struct rtmsg, and the
// address as an attribute (rtnetlink(7)).
func question(addr netip.Addr, seq uint32) []byte {
	family, host := byte(unix.AF_INET6), addr.AsSlice()
	if addr.Is4() {
		family = unix.AF_INET
	}
	native := binary.NativeEndian
	b := make([]byte, 0, unix.SizeofNlMsghdr+unix.SizeofRtMsg+unix.SizeofRtAttr+len(host))
	b = native.AppendUint32(b, uint32(cap(b)))
	b = native.AppendUint16(b, unix.RTM_GETROUTE)
	b = native.AppendUint16(b, unix.NLM_F_REQUEST)
	b = native.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0) // the kernel knows who asks
	b = append(b, family, byte(addr.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = native.AppendUint16(b, uint16(unix.SizeofRtAttr+len(host)))
	b = native.AppendUint16(b, unix.RTA_DST)
	return append(b, host...)
}

// answer is what is known of one.
type answer struct {
	seq   uint32
	kind  byte       // of the route, RTN_UNICAST and others
	errno unix.Errno // why there is none; 0: there is one
}

// refusal is the kernel's error.
func (a answer) refusal() error {
	if a.errno == 0 {
		return nil
	}
	return a.errno
}

// parse reads an answer: a route, or an error.
func parse(b []byte) (answer, error) {
	const least = unix.SizeofNlMsghdr + 8 // up to the type of a route
	if len(b) < least {
		return answer{}, errors.New("the answer is too short")
	}
	native := binary.NativeEndian
	a := answer{seq: native.Uint32(b[8:])}
	body := b[unix.SizeofNlMsghdr:]
	switch native.Uint16(b[4:]) {
	case unix.RTM_NEWROUTE:
		a.kind = body[7]
		return a, nil
	case unix.NLMSG_ERROR:
		if a.errno = unix.Errno(-int32(native.Uint32(body))); a.errno != 0 {
			return a, nil
		}
	}
	return a, errors.New("the answer is no route")
}

// onlyAnswers lets nothing but single routes and errors in: a process that is taken over
// cannot list the host's devices, addresses and neighbours.
func onlyAnswers(fd int) error {
	const in, out = 1 << 16, 0
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2}, // the type
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded(unix.NLMSG_ERROR), SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded(unix.RTM_NEWROUTE), SkipTrue: 3},
		bpf.LoadAbsolute{Off: 6, Size: 2}, // the flags
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: loaded(unix.NLM_F_MULTI), SkipTrue: 1},
		bpf.RetConstant{Val: in},
		bpf.RetConstant{Val: out},
	})
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// loaded is a field as a filter loads it: in network order, which it is not in.
func loaded(field uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, field)))
}
