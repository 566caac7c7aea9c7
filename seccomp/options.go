package seccomp

import "golang.org/x/sys/unix"

// The levels of setsockopt of which some options are refused.
var (
	solSocket   = Value{unix.SOL_SOCKET, "SOL_SOCKET"}
	ipprotoTCP  = Value{unix.IPPROTO_TCP, "IPPROTO_TCP"}
	ipprotoIPv6 = Value{unix.IPPROTO_IPV6, "IPPROTO_IPV6"}
)

// optionRules are the options of sockets. The refused ones take kernel memory that
// is charged to no cgroup, from limits that all of the host shares.
var optionRules = []Rule{
	{
		Syscalls: fields(`setsockopt`),
		Args: []Arg{{Index: 1, Name: "level", Mask: bits32, Values: []Value{
			{unix.IPPROTO_IP, "IPPROTO_IP"}, {unix.IPPROTO_UDP, "IPPROTO_UDP"},
		}}},
		Allow: true,
		Why:   "options of IPv4 and UDP; what reaches netfilter or xfrm needs a capability that is not held. No socket inside has other levels than these and those below",
	},
	{
		Syscalls: fields(`setsockopt`),
		Args: options(solSocket, 128,
			Value{unix.SO_ATTACH_FILTER, "SO_ATTACH_FILTER"}, Value{unix.SO_ATTACH_BPF, "SO_ATTACH_BPF"},
			Value{unix.SO_ATTACH_REUSEPORT_CBPF, "SO_ATTACH_REUSEPORT_CBPF"}, Value{unix.SO_ATTACH_REUSEPORT_EBPF, "SO_ATTACH_REUSEPORT_EBPF"}),
		Allow: true,
		Why: "options of all sockets. Not filters: they are compiled into memory that net.core.bpf_jit_limit bounds for the whole host." +
			" Once it is used up, no seccomp filter can be loaded and no sandbox starts",
	},
	{
		Syscalls: fields(`setsockopt`),
		Args: options(ipprotoTCP, 64,
			Value{unix.TCP_ULP, "TCP_ULP"}, Value{unix.TCP_MD5SIG, "TCP_MD5SIG"}, Value{unix.TCP_MD5SIG_EXT, "TCP_MD5SIG_EXT"},
			Value{tcpAOAddKey, "TCP_AO_ADD_KEY"}, Value{tcpAODelKey, "TCP_AO_DEL_KEY"}, Value{tcpAOInfo, "TCP_AO_INFO"}, Value{tcpAOGetKeys, "TCP_AO_GET_KEYS"}, Value{tcpAORepair, "TCP_AO_REPAIR"}),
		Allow: true,
		Why: "options of TCP, such as TCP_NODELAY. Not TCP_ULP, which puts kernel TLS, SMC or ESP under a socket (CVE-2023-0461, Fragnesia);" +
			" TLS libraries go on without it. Not keys of TCP_MD5SIG and TCP_AO, for routers: each socket holds up to 128 KiB of them",
	},
	{
		Syscalls: fields(`setsockopt`),
		Args: options(ipprotoIPv6, 128, append([]Value{
			{unix.IPV6_2292PKTOPTIONS, "IPV6_2292PKTOPTIONS"}, {ipv6FlowLabel, "IPV6_FLOWLABEL_MGR"}, {unix.IPV6_RTHDR, "IPV6_RTHDR"},
		}, joinIPv6...)...),
		Allow: true,
		Why: "options of IPv6. Not IPV6_2292PKTOPTIONS and IPV6_RTHDR, of which each socket keeps up to 64 KiB and 2 KiB;" +
			" not IPV6_FLOWLABEL_MGR: all of the host shares 4096 labels",
	},
	{
		Syscalls: fields(`setsockopt`),
		Args: []Arg{
			{Index: 1, Name: "level", Mask: bits32, Values: []Value{ipprotoIPv6}},
			{Index: 2, Name: "option", Mask: bits32, Values: joinIPv6},
		},
		Errno: unix.ENODEV,
		Why: "multicast groups of IPv6: a socket may join more than 2000, and the kernel keeps each of them." +
			" No device inside has IPv6 but the loopback; the error is that of a host without one",
	},
}

// joinIPv6 are the options that join groups of IPv6.
var joinIPv6 = []Value{
	{unix.IPV6_JOIN_GROUP, "IPV6_JOIN_GROUP"},
	{unix.IPV6_JOIN_ANYCAST, "IPV6_JOIN_ANYCAST"},
	{unix.MCAST_JOIN_GROUP, "MCAST_JOIN_GROUP"},
	{unix.MCAST_JOIN_SOURCE_GROUP, "MCAST_JOIN_SOURCE_GROUP"},
}

// Options that x/sys has no name for (linux/tcp.h, linux/in6.h).
const (
	tcpAOAddKey  = 38
	tcpAODelKey  = 39
	tcpAOInfo    = 40
	tcpAOGetKeys = 41
	tcpAORepair  = 42

	ipv6FlowLabel = 32
)

// options holds for a level's options below a bound, except some.
func options(level Value, under uint64, except ...Value) []Arg {
	return []Arg{
		{Index: 1, Name: "level", Mask: bits32, Values: []Value{level}},
		{Index: 2, Name: "option", Mask: bits32, Not: true, Under: under, Values: except},
	}
}
