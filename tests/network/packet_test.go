package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// flow is who exchanges packets with whom, on which device. Without ports, they are 0.
type flow struct {
	device   int
	protocol byte
	from, to netip.AddrPort
}

func (f flow) back() flow { return flow{f.device, f.protocol, f.to, f.from} }

// packet is what is known of one.
type packet struct {
	flow
	what  string // what it is for, and where it goes
	cites flow   // that of the packet whose fate an ICMP packet tells
}

// like reports whether p differs from another by its source port alone.
func (p packet) like(o packet) bool {
	return p.what == o.what && p.device == o.device && p.from.Addr() == o.from.Addr()
}

func (p packet) String() string {
	text := p.what
	if p.from.IsValid() {
		text += " from " + where(p.from)
	}
	if p.device > loIndex {
		text += fmt.Sprintf(" on device %d", p.device)
	}
	return text
}

// where is an address, with its port if there is one.
func where(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// The kinds of TCP packets: those that begin a connection, and the rest.
const (
	kindBegin   = "syn"
	kindSegment = "segment to"
)

// parse reads a packet on a device from its network header on.
func parse(device int, ethertype uint16, b []byte) packet {
	f, body, whole := parseIP(device, b)
	if known := ethertype == unix.ETH_P_IP || ethertype == unix.ETH_P_IPV6; !known || !f.to.IsValid() {
		return packet{flow: flow{device: device}, what: fmt.Sprintf("ethertype %#04x", ethertype)}
	}
	if !whole {
		return packet{flow: f, what: "fragment to " + where(f.to)}
	}
	p := packet{flow: f}
	kind := fmt.Sprintf("protocol %d to", f.protocol)
	switch {
	case f.protocol == unix.IPPROTO_TCP && len(body) >= 20:
		kind = kindSegment
		if flags := body[13]; flags&0x12 == 0x02 { // SYN without ACK
			kind = kindBegin
		}
	case f.protocol == unix.IPPROTO_UDP && len(body) >= 8:
		kind = "udp"
		if f.to.Port() == 53 {
			kind = parseQuestion(body[8:])
		}
	case isError(f.protocol, body):
		p.cites, _, _ = parseIP(device, body[8:])
	}
	p.what = kind + " " + where(f.to)
	return p
}

// parseIP reads a header of IPv4 or IPv6. Of a fragment, whole is false.
func parseIP(device int, b []byte) (f flow, body []byte, whole bool) {
	f.device = device
	var from, to netip.Addr
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		from, _ = netip.AddrFromSlice(b[12:16])
		to, _ = netip.AddrFromSlice(b[16:20])
		f.protocol, body = b[9], b[min(int(b[0]&0xf)*4, len(b)):]
		whole = binary.BigEndian.Uint16(b[6:])&0x3fff == 0 // neither an offset nor more to come
	case len(b) >= 40 && b[0]>>4 == 6:
		from, _ = netip.AddrFromSlice(b[8:24])
		to, _ = netip.AddrFromSlice(b[24:40])
		f.protocol, body = b[6], b[40:]
		whole = f.protocol != unix.IPPROTO_FRAGMENT
	default:
		return f, nil, false
	}
	var ports [2]uint16
	if hasPorts := f.protocol == unix.IPPROTO_TCP || f.protocol == unix.IPPROTO_UDP; hasPorts && whole && len(body) >= 4 {
		ports = [2]uint16{binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])}
	}
	f.from, f.to = netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])
	return f, body, whole
}

// isError reports whether a packet tells the fate of another (RFC 792, RFC 4443).
func isError(protocol byte, body []byte) bool {
	switch {
	case len(body) < 8:
		return false
	case protocol == unix.IPPROTO_ICMP:
		return body[0] == 3 || body[0] == 11 || body[0] == 12
	}
	return protocol == unix.IPPROTO_ICMPV6 && body[0] < 128
}

// parseQuestion says what a resolver is asked for, all of it.
func parseQuestion(b []byte) string {
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || m.Response || len(m.Questions) == 0 {
		return "udp"
	}
	kind := "asks"
	for _, q := range m.Questions {
		kind += " " + strings.TrimPrefix(q.Type.String(), "Type") + " " + strings.TrimSuffix(q.Name.String(), ".")
	}
	return kind + " of"
}
