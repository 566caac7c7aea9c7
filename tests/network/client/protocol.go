package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// wire is a protocol, most of them neither TCP nor UDP.
type wire struct{ family, kind, protocol int }

var wires = map[string]wire{
	"sctp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, "dccp": {unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP},
	"udp":   {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
	"mptcp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, "udplite": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
	"icmp": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "igmp": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_IGMP}, "ipip": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_IPIP},
	"gre": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_GRE}, "esp": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ESP}, "rawtcp": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP},
	"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, "icmp6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	"link": {unix.AF_PACKET, unix.SOCK_DGRAM, 0}, "vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
}

// packet sends one, to port 80 where there are ports. That nobody takes it there is
// not its matter. A vsock socket is only made: it leads to whatever this machine runs
// in.
func packet(args []string) (string, error) {
	w, known := wires[args[0]]
	to, err := netip.ParseAddr(args[1])
	if !known || err != nil {
		return "", errors.Join(fmt.Errorf("no protocol %q", args[0]), err)
	}
	fd, err := unix.Socket(w.family, w.kind|unix.SOCK_CLOEXEC, w.protocol)
	if err != nil {
		return "", fmt.Errorf("no socket: %w", err)
	}
	defer unix.Close(fd)
	if w.family == unix.AF_VSOCK {
		return "made", nil
	}
	if err := bind(fd, w.family); err != nil {
		return "", err
	}
	if w.kind == unix.SOCK_STREAM || w.kind == unix.SOCK_DCCP {
		err = unix.Connect(fd, w.address(to))
	} else {
		err = unix.Sendto(fd, w.body(to), 0, w.address(to))
	}
	if err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ECONNRESET) {
		return "", fmt.Errorf("a socket, but: %w", err)
	}
	return "sent", nil
}

func (w wire) address(to netip.Addr) unix.Sockaddr {
	port := 80
	if w.kind == unix.SOCK_RAW {
		port = 0
	}
	switch w.family {
	case unix.AF_INET6:
		return &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}
	case unix.AF_PACKET:
		return &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: 1, Halen: 6} // IPv4 on lo, which comes first
	}
	return &unix.SockaddrInet4{Addr: to.As4(), Port: port}
}

// body is a packet where the socket wants one with its header, and a payload elsewhere.
func (w wire) body(to netip.Addr) []byte {
	payload := []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1} // an echo request with its checksum
	if w.family != unix.AF_PACKET && w.protocol != unix.IPPROTO_RAW {
		return payload
	}
	from, to4 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.As4()
	if own := source(unix.AF_INET); own.IsValid() {
		from = own
	}
	header := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_ICMP, 0, 0}
	return slices.Concat(header, from.AsSlice(), to4[:], payload)
}
