package proxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST of linux/netfilter_ipv4.h.
const soOriginalDst = 80

// OriginalDestination asks the kernel where c was meant to go before a rule of
// the sandbox's namespace redirected it. For a connection that no rule touched
// that is an error, or the listener's own address.
func OriginalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", err)
	}
	var answer *unix.IPv6Mreq // any structure with room for a sockaddr_in (16 bytes)
	var asked error
	if err := raw.Control(func(fd uintptr) {
		answer, asked = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst)
	}); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", err)
	}
	if asked != nil {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", asked)
	}
	return sockaddrIn(answer.Multiaddr)
}

// sockaddrIn reads a struct sockaddr_in (ip(7)).
func sockaddrIn(b [16]byte) (netip.AddrPort, error) {
	if family := binary.NativeEndian.Uint16(b[:2]); family != unix.AF_INET {
		return netip.AddrPort{}, fmt.Errorf("the original destination has address family %d", family)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), nil
}
