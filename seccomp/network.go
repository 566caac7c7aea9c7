package seccomp

import "golang.org/x/sys/unix"

// A socket's family and protocol decide which part of the kernel, often a module
// that is loaded on demand, then handles hostile bytes. So both are listed, and the
// type with them; sockets made otherwise do not exist (no io_uring, no other ABI).
var (
	families = Arg{Index: 0, Name: "family", Mask: bits32, Values: []Value{
		{unix.AF_INET, "AF_INET"},
		{unix.AF_INET6, "AF_INET6"},
	}}
	stream   = socketType(Value{unix.SOCK_STREAM, "SOCK_STREAM"})
	datagram = socketType(Value{unix.SOCK_DGRAM, "SOCK_DGRAM"})
)

// ownFamily holds for one family.
func ownFamily(bits uint64, name string) Arg {
	return Arg{Index: 0, Name: "family", Mask: bits32, Values: []Value{{bits, name}}}
}

// socketType compares the type without SOCK_CLOEXEC and SOCK_NONBLOCK. SOCK_TYPE_MASK
// has 4 bits; the kernel refuses unknown ones above by itself.
func socketType(types ...Value) Arg {
	return Arg{Index: 1, Name: "type & 0xf", Mask: 0xf, Values: types}
}

func protocol(values ...Value) Arg {
	return Arg{Index: 2, Name: "protocol", Mask: bits32, Values: values}
}

// unixSocket holds for the arguments of local sockets.
var unixSocket = []Arg{ownFamily(unix.AF_UNIX, "AF_UNIX"), socketType(
	Value{unix.SOCK_STREAM, "SOCK_STREAM"},
	Value{unix.SOCK_DGRAM, "SOCK_DGRAM"},
	Value{unix.SOCK_SEQPACKET, "SOCK_SEQPACKET"},
)}

// socketRules say which sockets can be made. Families of past and likely attacks
// (AF_ALG, AF_VSOCK, AF_PACKET, AF_KEY, AF_RXRPC, AF_TIPC, AF_RDS, AF_CAN …) need no
// entry: they are not listed, so they are refused before a module is loaded. AF_NETLINK
// is listed with one protocol, as each of the others is a subsystem of its own, and
// several are for changes of the host.
var socketRules = []Rule{
	{
		Syscalls: fields(`socket socketpair`),
		Args:     unixSocket,
		Allow:    true,
		Why:      "local sockets, among the sandbox's own processes",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, stream, protocol(zero, Value{unix.IPPROTO_TCP, "IPPROTO_TCP"})},
		Allow:    true,
		Why:      "TCP; without a network this reaches the sandbox's own loopback, which tests and development servers use",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, datagram, protocol(zero, Value{unix.IPPROTO_UDP, "IPPROTO_UDP"})},
		Allow:    true,
		Why:      "UDP, as TCP; resolvers use it",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, stream, protocol(Value{unix.IPPROTO_MPTCP, "IPPROTO_MPTCP"})},
		Errno:    unix.EPROTONOSUPPORT,
		Why:      "multipath TCP has no second path here; this error is the one that makes Go stop trying it for each listener",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, datagram, pingProtocol},
		Errno:    unix.EACCES,
		When:     WithoutNetwork,
		Why:      "nothing to ping; EACCES is what the kernel says to those outside net.ipv4.ping_group_range",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, datagram, pingProtocol},
		Allow:    true,
		When:     WithNetwork,
		Why:      "ping; the sandbox's net.ipv4.ping_group_range decides",
	},
	{
		Syscalls: fields(`socket`),
		Args: []Arg{netlink, socketType(Value{unix.SOCK_DGRAM, "SOCK_DGRAM"}, Value{unix.SOCK_RAW, "SOCK_RAW"}),
			protocol(Value{unix.NETLINK_ROUTE, "NETLINK_ROUTE"})},
		Allow: true,
		Why: "asking for addresses, links and routes of the sandbox's own namespace: getifaddrs, ip, Node's os.networkInterfaces, Go's net.Interfaces, libzmq." +
			" Every change needs CAP_NET_ADMIN in the user namespace that owns the network namespace, which is the host's." +
			" The kernel charges unread answers to no cgroup, up to the receive buffer of each socket," +
			" so a second filter, of PID 1, asks PID 1 each time, which bounds the number of sockets",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{netlink, protocol(Value{unix.NETLINK_AUDIT, "NETLINK_AUDIT"})},
		Errno:    unix.EPROTONOSUPPORT,
		Why:      "the host's audit log; the error is that of a kernel without one, and groupadd and PAM go on. They stop at EPERM",
	},
}

var netlink = ownFamily(unix.AF_NETLINK, "AF_NETLINK")

var pingProtocol = protocol(
	Value{unix.IPPROTO_ICMP, "IPPROTO_ICMP"},
	Value{unix.IPPROTO_ICMPV6, "IPPROTO_ICMPV6"},
)

// networkRules: use of sockets that exist.
var networkRules = []Rule{
	{
		Syscalls: fields(`bind connect listen accept accept4 shutdown getsockname getpeername getsockopt`),
		Allow:    true,
		Why:      "use of the sockets that the socket rules let exist; the network namespace decides what they reach",
	},
	{
		Syscalls: fields(`sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg`),
		Allow:    true,
		Why:      "sending and receiving, descriptors included: our own init gets its start requests so",
	},
}
