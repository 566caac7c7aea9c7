package main

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// noType is a type that no socket has. The kernel looks at it before it would
// load a module for the family (net/socket.c, __sock_create), so that a control
// loads none.
const noType = 15

// families that attacks came through, by name.
var families = map[string]uintptr{
	"AF_ALG": unix.AF_ALG, "AF_VSOCK": unix.AF_VSOCK, "AF_RXRPC": unix.AF_RXRPC, "AF_KEY": unix.AF_KEY, "AF_TIPC": unix.AF_TIPC,
	"AF_RDS": unix.AF_RDS, "AF_CAN": unix.AF_CAN, "AF_BLUETOOTH": unix.AF_BLUETOOTH, "AF_SMC": unix.AF_SMC,
	"AF_QIPCRTR": unix.AF_QIPCRTR, "AF_MCTP": unix.AF_MCTP, "AF_XDP": unix.AF_XDP, "AF_NFC": unix.AF_NFC, "AF_LLC": unix.AF_LLC,
}

func socketProbes() []probe {
	out := []probe{
		{id: "P025", name: "socket(AF_ALG)", try: socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0), want: refused},
		{id: "P026", name: "socket(AF_VSOCK)", try: socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0), want: refused},
		{id: "P030", name: "socket(AF_PACKET)", try: socket(unix.AF_PACKET, unix.SOCK_RAW, 0), want: refused},
		{id: "P030", name: "socket(AF_INET, SOCK_RAW)", try: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), want: refused},
		{id: "P030", name: "socket(AF_INET6, SOCK_RAW)", try: socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6), want: refused},
		{id: "P031", name: "ping socket", try: socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP), want: []string{"EACCES"}},
		{id: "P028", name: "socket(AF_INET, SOCK_STREAM, MPTCP)", try: socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), want: []string{"EPROTONOSUPPORT"}},
		{id: "P029", name: "socket(AF_NETLINK, NETLINK_AUDIT)", try: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT), want: []string{"EPROTONOSUPPORT"}},
		{id: "P029", name: "socket(AF_NETLINK, NETLINK_GENERIC)", try: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC), want: refused},
		{id: "P029", name: "socket(AF_NETLINK, NETLINK_KOBJECT_UEVENT)", try: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT), want: refused},
		{id: "P028", name: "which sockets there are", try: sockets, want: []string{
			"[unix/stream unix/dgram unix/seqpacket inet/stream inet/dgram inet6/stream inet6/dgram netlink/dgram netlink/raw]"}},
		{id: "P032", name: "setsockopt(TCP_ULP)", try: option(unix.SOCK_STREAM, unix.IPPROTO_TCP, unix.TCP_ULP), want: refused},
		{id: "P032", name: "setsockopt(IP_XFRM_POLICY)", try: option(unix.SOCK_DGRAM, unix.IPPROTO_IP, unix.IP_XFRM_POLICY), want: refused},
		{id: "P032", name: "setsockopt(IPT_SO_SET_REPLACE)", try: option(unix.SOCK_DGRAM, unix.IPPROTO_IP, 64),
			want: append([]string{"ENOPROTOOPT"}, refused...)}, // the namespace has no such tables
		{id: "P032", name: "setsockopt(SO_RCVBUFFORCE)", try: option32(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE), want: refused},
		{id: "P032", name: "setsockopt(SO_MARK)", try: option32(unix.SOL_SOCKET, unix.SO_MARK), want: refused},
		{id: "P032", name: "setsockopt(IP_TRANSPARENT)", try: option32(unix.IPPROTO_IP, unix.IP_TRANSPARENT), want: refused},
	}
	out = append(out, kernelMemoryProbes()...)
	out = append(out, rtnetlinkProbes()...)
	for family := range uintptr(47) {
		out = append(out, probe{id: "P028", name: fmt.Sprintf("family %d", family), try: socket(family, noType, 0), want: refused})
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		out = append(out, probe{id: "P033", name: "socketpair(" + name + ")", want: refused, try: func() string {
			return raw(unix.SYS_SOCKETPAIR, families[name], noType, 0, badPointer)
		}})
	}
	for protocol := range uintptr(23) {
		want := refused
		if protocol == unix.NETLINK_AUDIT {
			want = []string{"EPROTONOSUPPORT"}
		}
		// Netlink has no streams; it says so before it would load a module.
		out = append(out, probe{id: "P029", name: fmt.Sprintf("netlink protocol %d", protocol),
			try: socket(unix.AF_NETLINK, unix.SOCK_STREAM, protocol), want: want})
	}
	return out
}

func socket(family, kind, protocol uintptr) func() string {
	return func() string {
		fd, err := unix.Socket(int(family), int(kind)|unix.SOCK_CLOEXEC, int(protocol))
		if err != nil {
			return outcome(err)
		}
		_ = unix.Close(fd)
		return ok
	}
}

// sockets lists every family and type that gives a socket, or an answer other
// than a refusal. A control asks only for families that need no module.
func sockets() string {
	types := map[int]string{
		unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "dgram", unix.SOCK_RAW: "raw", unix.SOCK_RDM: "rdm",
		unix.SOCK_SEQPACKET: "seqpacket", unix.SOCK_DCCP: "dccp", unix.SOCK_PACKET: "packet",
	}
	names := map[int]string{unix.AF_UNIX: "unix", unix.AF_INET: "inet", unix.AF_INET6: "inet6", unix.AF_NETLINK: "netlink"}
	var made []string
	for family := range 47 {
		if around.control && !slices.Contains([]int{unix.AF_UNIX, unix.AF_NETLINK, unix.AF_PACKET}, family) {
			continue
		}
		for kind := range 11 {
			got := socket(uintptr(family), uintptr(kind), 0)()
			if got == "EPERM" {
				continue
			}
			name := names[family] + "/" + types[kind]
			if names[family] == "" || types[kind] == "" {
				name = fmt.Sprintf("%d/%d", family, kind)
			}
			if got != ok {
				name += ":" + got
			}
			made = append(made, name)
		}
	}
	return list(made)
}

// option sets an option with nothing in it, which each of them refuses once it
// was reached.
func option(kind, level, name uintptr) func() string {
	return func() string {
		fd, err := unix.Socket(unix.AF_INET, int(kind)|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "no socket: " + outcome(err)
		}
		defer unix.Close(fd)
		return raw(unix.SYS_SETSOCKOPT, uintptr(fd), level, name, badPointer, 0)
	}
}

func option32(level, name int) func() string {
	return func() string {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "no socket: " + outcome(err)
		}
		defer unix.Close(fd)
		return outcome(unix.SetsockoptInt(fd, level, name, 1))
	}
}
