package seccomp

import "golang.org/x/sys/unix"

// Gateway returns the filter that caisson-gateway puts on itself once all it
// needs is open: a Go program that carries TCP, asks resolvers, and gets its
// listening sockets from the daemon. Nothing in it opens a file, runs a
// program, or makes a socket that listens.
func Gateway() Profile {
	return Profile{Name: "gateway", Summary: "the egress gateway: what Go's runtime and its TCP and UDP need", Rules: gatewayRules}
}

// goThread are the flags of clone(2) with which Go makes a thread
// (runtime/os_linux.go); amd64 adds SETTLS.
const goThread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD

var gatewayRules = []Rule{
	{
		Syscalls: fields(`read write close splice epoll_pwait epoll_ctl futex`),
		Allow:    true,
		Why:      "carrying bytes, and waiting for them",
	},
	{
		Syscalls: fields(`nanosleep sched_yield clock_gettime getrandom madvise munmap getpid gettid tgkill
			rt_sigprocmask rt_sigaction rt_sigreturn sigaltstack restart_syscall exit exit_group`),
		Allow: true,
		Why:   "Go's runtime: scheduling, memory, preemption by a signal to an own thread, and the end. In its pid namespace there is nobody else to signal",
	},
	{
		Syscalls: fields(`mmap`),
		Args: []Arg{
			{Index: 2, Name: "protection", Mask: unix.PROT_EXEC, Values: []Value{zero}},
			{Index: 3, Name: "flags & MAP_ANONYMOUS", Mask: unix.MAP_ANONYMOUS, Values: []Value{{unix.MAP_ANONYMOUS, "MAP_ANONYMOUS"}}},
		},
		Allow: true,
		Why:   "memory, never executable and never of a file",
	},
	{
		Syscalls: fields(`clone`),
		Args:     []Arg{{Index: 0, Name: "flags & ~CLONE_SETTLS", Mask: bits32 &^ unix.CLONE_SETTLS, Values: []Value{{goThread, "a thread of Go"}}}},
		Allow:    true,
		Why:      "threads, never a process",
	},
	{
		Syscalls: fields(`prctl`),
		Errno:    unix.EINVAL,
		Why:      "Go names its memory by PR_SET_VMA, and stops trying at this error",
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
}
