package seccomp

import "golang.org/x/sys/unix"

// Gateway returns the filter that caisson-gateway puts on itself once all it
// needs is open: a Go program that carries TCP, asks resolvers, and gets its
// listening sockets from the daemon. Nothing in it opens a file, runs a
// program, or makes a socket that listens.
func Gateway() Profile {
	return Profile{Name: "gateway", Summary: "the egress gateway: what Go's runtime and its TCP and UDP need", Rules: gatewayRules}
}

var gatewayRules = append([]Rule{
	{
		Syscalls: fields(`read write close splice epoll_pwait epoll_ctl futex`),
		Allow:    true,
		Why:      "carrying bytes, and waiting for them",
	},
	{
		Syscalls: fields(`clone`),
		Args:     []Arg{{Index: 0, Name: "flags & ~CLONE_SETTLS", Mask: bits32 &^ unix.CLONE_SETTLS, Values: []Value{{goThread, "a thread of Go"}}}},
		Allow:    true,
		Why:      "threads, never a process",
	},
	{
		Syscalls: fields(`fcntl`),
		Args: []Arg{{Index: 1, Name: "command", Mask: bits32, Values: []Value{
			{unix.F_GETFL, "F_GETFL"}, {unix.F_SETFL, "F_SETFL"}, {unix.F_DUPFD_CLOEXEC, "F_DUPFD_CLOEXEC"}, {unix.F_SETFD, "F_SETFD"},
			{unix.F_SETPIPE_SZ, "F_SETPIPE_SZ"},
		}}},
		Allow: true,
		Why:   "taking over sockets that the daemon passed; pipes that hold as much as is spliced at once. Not F_SETOWN, which sends signals",
	},
	{
		Syscalls: fields(`pipe2`),
		Allow:    true,
		Why:      "a splice goes through a pipe",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, stream, protocol(zero, Value{unix.IPPROTO_TCP, "IPPROTO_TCP"})},
		Allow:    true,
		Why:      "the connections that it makes for sandboxes, and questions to resolvers over TCP",
	},
	{
		Syscalls: fields(`socket`),
		Args:     []Arg{families, datagram, protocol(zero, Value{unix.IPPROTO_UDP, "IPPROTO_UDP"})},
		Allow:    true,
		Why:      "questions to resolvers",
	},
	{
		Syscalls: fields(`connect accept4 shutdown getsockname getpeername getsockopt recvfrom sendto recvmsg sendmsg`),
		Allow:    true,
		Why:      "use of sockets. Not bind and listen: nobody on the host or its network can be made to call here",
	},
	{
		Syscalls: fields(`setsockopt`),
		Args: []Arg{
			{Index: 1, Name: "level", Mask: bits32, Values: []Value{{unix.SOL_SOCKET, "SOL_SOCKET"}}},
			{Index: 2, Name: "option", Mask: bits32, Values: []Value{
				{unix.SO_KEEPALIVE, "SO_KEEPALIVE"}, {unix.SO_LINGER, "SO_LINGER"}, {unix.SO_BROADCAST, "SO_BROADCAST"},
				{unix.SO_SNDBUF, "SO_SNDBUF"}, {unix.SO_RCVBUF, "SO_RCVBUF"}, {unix.SO_BUF_LOCK, "SO_BUF_LOCK"},
			}},
		},
		Allow: true,
		Why:   "keeping alive, resetting, what Go sets on each UDP socket, and bounds of what the kernel queues",
	},
	{
		Syscalls: fields(`setsockopt`),
		Args: []Arg{
			{Index: 1, Name: "level", Mask: bits32, Values: []Value{ipprotoTCP}},
			{Index: 2, Name: "option", Mask: bits32, Values: []Value{
				{unix.TCP_NODELAY, "TCP_NODELAY"}, {unix.TCP_KEEPIDLE, "TCP_KEEPIDLE"}, {unix.TCP_KEEPINTVL, "TCP_KEEPINTVL"}, {unix.TCP_KEEPCNT, "TCP_KEEPCNT"},
				{unix.TCP_WINDOW_CLAMP, "TCP_WINDOW_CLAMP"},
			}},
		},
		Allow: true,
		Why:   "the same for TCP",
	},
}, goRules...)
