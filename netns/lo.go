package netns

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses of lo beside 127.0.0.1 and ::1. getaddrinfo(3) with AI_ADDRCONFIG finds
// nothing of a family that has no address, and glibc counts all but these two. Without
// others, a program that asks for IPv4 alone finds neither allowed names nor localhost.
//
// A namespace needs one of each family: with one of IPv4 alone glibc leaves ::1 out, on which
// many servers listen that were told "localhost".
//
// Neither leads anywhere new. All of 127.0.0.0/8 is local on lo anyway. The other is of this
// link only (RFC 4291, 2.5.6), and is to the rules what ::1 is: they would drop the reset of
// a connection to it, which would wait for minutes.
var (
	countedV4 = &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(127, 0, 0, 2), Mask: net.CIDRMask(8, 32)}, Scope: unix.RT_SCOPE_HOST}
	countedV6 = &netlink.Addr{
		IPNet: &net.IPNet{IP: net.ParseIP("fe80::2"), Mask: net.CIDRMask(128, 128)}, Scope: unix.RT_SCOPE_LINK,
		Flags: unix.IFA_F_NOPREFIXROUTE,
	}
)

// loAddresses are all that lo may have. A namespace of an earlier version has the first and
// the last alone.
var loAddresses = []string{"127.0.0.1/8", countedV4.IPNet.String(), countedV6.IPNet.String(), "::1/128"}

// addCounted adds them to lo, which is up.
func addCounted(h *netlink.Handle) error {
	known, err := families()
	if err != nil {
		return err
	}
	for _, f := range known {
		addr := countedV4
		if f == familyV6 {
			addr = countedV6
		}
		if err := h.AddrAdd(loDevice, addr); err != nil {
			return fmt.Errorf("add address %s to lo: %w", addr.IPNet, err)
		}
	}
	return nil
}

// removeCountedV6 is for a namespace that has a link with IPv4 alone. Programs there ask for
// no addresses of IPv6, which lead nowhere.
func removeCountedV6(h *netlink.Handle) error {
	err := h.AddrDel(loDevice, countedV6)
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("remove address %s from lo: %w", countedV6.IPNet, err)
	}
	return nil
}
