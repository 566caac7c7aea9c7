package seccomp

import "golang.org/x/sys/unix"

// namespaceFlags are the CLONE_NEW* flags that clone takes. CLONE_NEWTIME is not
// among them: its bit is part of the exit signal there, and only clone3 and unshare,
// both refused, give it its other meaning.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// processRules: making, running, signalling and scheduling of processes.
var processRules = []Rule{
	{
		Syscalls: fields(`clone`),
		Args: []Arg{{Index: 0, Name: "flags & (CLONE_NEW*|CLONE_FILES|CLONE_THREAD)", Mask: namespaceFlags | unix.CLONE_FILES | unix.CLONE_THREAD,
			Values: []Value{zero, {unix.CLONE_THREAD, "CLONE_THREAD"}, {unix.CLONE_FILES | unix.CLONE_THREAD, "CLONE_FILES|CLONE_THREAD"}}}},
		Allow: true,
		Why: "processes and threads, but no namespaces: a user namespace gives its maker all capabilities over new kernel objects," +
			" which is how CVE-2022-0185, CVE-2023-32233 and CVE-2024-1086 were reached. Not processes that share descriptors:" +
			" file locks would outlive the process that the kernel names as their owner",
	},
	{
		Syscalls: fields(`clone3`),
		Errno:    unix.ENOSYS,
		Why:      "its flags lie behind a pointer, where a filter cannot look; ENOSYS makes C libraries use clone",
	},
	{
		Syscalls: fields(`fork vfork`),
		Allow:    true,
		Arch:     "amd64",
		Why:      "clone without flags; the pids limit bounds it",
	},
	{
		Syscalls: fields(`execve execveat exit exit_group wait4 waitid`),
		Allow:    true,
		Why:      "running and ending programs; execveat is what fexecve of a memfd uses",
	},
	{
		Syscalls: fields(`getpid getppid gettid set_tid_address set_robust_list get_robust_list rseq membarrier`),
		Allow:    true,
		Why:      "what C libraries and Go set up for each thread",
	},
	{
		Syscalls: fields(`kill tkill tgkill pidfd_open pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo`),
		Allow:    true,
		Why:      "signals; the pid namespace holds nothing but the sandbox's own processes",
	},
	{
		Syscalls: fields(`rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigreturn sigaltstack restart_syscall`),
		Allow:    true,
		Why:      "receiving signals; restart_syscall is issued by the kernel itself",
	},
	{
		Syscalls: fields(`alarm pause getpgrp`),
		Allow:    true,
		Arch:     "amd64",
		Why:      "older forms of setitimer, rt_sigsuspend and getpgid",
	},
	{
		Syscalls: fields(`setsid getsid setpgid getpgid`),
		Allow:    true,
		Why:      "sessions and process groups: shells and our own init",
	},
	{
		Syscalls: fields(`sched_yield sched_getaffinity sched_setaffinity sched_getscheduler sched_setscheduler sched_getparam sched_setparam
			sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu
			getpriority setpriority ioprio_get ioprio_set`),
		Allow: true,
		Why: "counting CPUs, pinning threads, nice and batch; real-time classes and negative nice need CAP_SYS_NICE or a limit above 0," +
			" and cpu.max bounds the rest. All take the number of any thread, so threads of PID 1 can be slowed down: only the same sandbox waits for it",
	},
	{
		Syscalls: fields(`getrlimit setrlimit getrusage times sysinfo uname`),
		Allow:    true,
		Why:      "limits (only downwards: CAP_SYS_RESOURCE is not held), use of resources, and the system's name",
	},
	{
		Syscalls: fields(`prlimit64`),
		Args:     []Arg{{Index: 0, Name: "pid", Mask: bits32, Values: []Value{{0, "0 (the caller)"}}}},
		Allow:    true,
		Why: "the caller's own limits, which C libraries' setrlimit and the shells' ulimit set in this way. Not by a number, be it the caller's own:" +
			" a command has the user id of PID 1 and of the process for files, and would take away their descriptors. prlimit(1) works without --pid, and /proc/PID/limits tells those of others",
	},
	{
		Syscalls: fields(`getuid geteuid getgid getegid getresuid getresgid getgroups`),
		Allow:    true,
		Why:      "asking for the own ids",
	},
	{
		Syscalls: fields(`setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capget capset`),
		Allow:    true,
		Why:      "dropping rights, as servers and su-like tools do; without capabilities nothing can be gained",
	},
	{
		Syscalls: fields(`personality`),
		Args: []Arg{{Index: 0, Name: "persona", Mask: bits32, Values: []Value{
			{0, "PER_LINUX"},
			{0x0008, "PER_LINUX32"},
			{0x20000, "UNAME26"},
			{0x20008, "PER_LINUX32|UNAME26"},
			{bits32, "0xffffffff (ask)"},
		}}},
		Allow: true,
		Why:   "asking, and the name that uname shows (linux32, setarch). Not ADDR_NO_RANDOMIZE or READ_IMPLIES_EXEC, which switch protections off for all that is executed later",
	},
	{
		Syscalls: fields(`getrandom`),
		Allow:    true,
		Why:      "random numbers without a device",
	},
}

// confinementRules let a program confine itself further: browsers, test runners and
// package builders do. None of these can loosen anything.
var confinementRules = []Rule{
	{
		Syscalls: fields(`seccomp`),
		Args: []Arg{
			{Index: 0, Name: "operation", Mask: bits32, Values: []Value{
				{unix.SECCOMP_SET_MODE_STRICT, "SET_MODE_STRICT"},
				{unix.SECCOMP_GET_ACTION_AVAIL, "GET_ACTION_AVAIL"},
			}},
			{Index: 1, Name: "flags", Mask: bits32, Values: []Value{zero}},
		},
		Allow: true,
		Why:   "the mode without a filter, and questions",
	},
	{
		Syscalls: fields(`seccomp`),
		Args:     []Arg{ownFilter, {Index: 1, Name: "flags", Mask: bits32, Values: []Value{listenerFlags}}},
		Allow:    true,
		Why: "PID 1 puts its own filter in force before any command starts: by it, it bounds the number of netlink sockets." +
			" That filter refuses the same call from then on (EINVAL), and the kernel takes no second listener below a first one",
	},
	{
		Syscalls: fields(`landlock_create_ruleset landlock_add_rule landlock_restrict_self`),
		Allow:    true,
		Why:      "own file and network restrictions (Linux 5.13)",
	},
}

// listenerFlags are those of PID 1's filter (initproto/listener), in this combination only.
var listenerFlags = Value{
	unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH,
	"TSYNC|NEW_LISTENER|TSYNC_ESRCH",
}

// ownFilter is the argument that asks for a filter.
var ownFilter = Arg{Index: 0, Name: "operation", Mask: bits32, Values: []Value{{unix.SECCOMP_SET_MODE_FILTER, "SET_MODE_FILTER"}}}

// noFilterRules refuse filters of a program's own. The kernel compiles them into
// memory that net.core.bpf_jit_limit bounds for the whole host, and bounds them only
// for each process: by seven filters of 4096 instructions. One sandbox took a fifth
// of the limit so; once it is used up, no sandbox starts.
var noFilterRules = []Rule{
	{
		Syscalls: fields(`seccomp`),
		Args:     []Arg{ownFilter, {Index: 1, Name: "flags", Mask: bits32, Not: true, Values: []Value{listenerFlags}}},
		Errno:    unix.EINVAL,
		Why: "filters of a program's own use up memory that all of the host shares (net.core.bpf_jit_limit)." +
			" EINVAL is what a kernel without filters says: man, sshd, Chromium and Firefox go on without. compat allows them",
	},
	{
		Syscalls: fields(`prctl`),
		Args:     []Arg{setSeccomp, {Index: 1, Name: "mode", Mask: bits32, Values: []Value{{unix.SECCOMP_MODE_FILTER, "MODE_FILTER"}}}},
		Errno:    unix.EINVAL,
		Why:      "older form of the same",
	},
	{
		Syscalls: fields(`prctl`),
		Args:     []Arg{setSeccomp, {Index: 1, Name: "mode", Mask: bits32, Values: []Value{{unix.SECCOMP_MODE_STRICT, "MODE_STRICT"}}}},
		Allow:    true,
		Why:      "the mode without a filter",
	},
}

var setSeccomp = Arg{Index: 0, Name: "option", Mask: bits32, Values: []Value{{unix.PR_SET_SECCOMP, "SET_SECCOMP"}}}

// filterRules allow them.
var filterRules = []Rule{
	{
		Syscalls: fields(`seccomp`),
		Args: []Arg{ownFilter, {Index: 1, Name: "flags & ~(TSYNC|TSYNC_ESRCH|SPEC_ALLOW)", Mask: bits32 &^ (unix.SECCOMP_FILTER_FLAG_TSYNC |
			unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW), Values: []Value{zero}}},
		Allow: true,
		Why: "stricter filters, within what is left of net.core.bpf_jit_limit. Not NEW_LISTENER: a supervisor can answer calls for others" +
			" with descriptors of its own choice, and only PID 1 may; not LOG: it fills the host's audit log",
	},
}
