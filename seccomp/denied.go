package seccomp

// Denial says why a call is in no rule of the strict profile.
type Denial struct {
	Syscalls []string
	Why      string
	Arch     string // GOARCH that alone has these names; empty is all
}

// Denied lists every call that strict refuses by not naming it. It decides nothing:
// it is shown by `caisson spec --seccomp`, and a test compares it with the rules, so
// that each call of the kernel is either allowed for a reason or refused for one.
var Denied = []Denial{
	{
		Syscalls: fields(`ptrace process_vm_readv process_vm_writev`),
		Why:      "tracing gives full control of another process, and its permission checks have had races; gdb, strace and LeakSanitizer need the profile debug",
	},
	{
		Syscalls: fields(`pidfd_getfd kcmp process_madvise process_mrelease`),
		Why:      "act on another process by the right to trace it (CVE-2026-46333)",
	},
	{
		Syscalls: fields(`unshare setns`),
		Why:      "making or entering namespaces gives capabilities over new kernel objects",
	},
	{
		Syscalls: fields(`mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr`),
		Why:      "the sandbox's mounts are made from outside; the mount API's parser was CVE-2022-0185",
	},
	{
		Syscalls: fields(`io_uring_setup io_uring_enter io_uring_register`),
		Why:      "runs calls, socket among them, where no filter sees them; a frequent source of kernel bugs. Programs fall back to epoll",
	},
	{
		Syscalls: fields(`io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents`),
		Why:      "native AIO takes from a counter that all of the host shares (fs.aio-max-nr); databases go on without it. compat allows it",
	},
	{
		Syscalls: fields(`bpf perf_event_open`),
		Why:      "programs in and measurements of the kernel; side channels and a long record of bugs",
	},
	{
		Syscalls: fields(`userfaultfd`),
		Why:      "stops the kernel in the middle of a copy, which makes its races exploitable",
	},
	{
		Syscalls: fields(`vmsplice`),
		Why:      "maps pages of a process into a pipe; page-cache attacks build on it, and almost nothing else",
	},
	{
		Syscalls: fields(`memfd_secret`),
		Why:      "memory that the kernel cannot reclaim and nobody can inspect",
	},
	{
		Syscalls: fields(`remap_file_pages`),
		Why:      "obsolete since Linux 3.16, emulated; compat allows it",
	},
	{
		Syscalls: fields(`name_to_handle_at open_by_handle_at`),
		Why:      "handles reach files past the mount tree, which let a container read any file of its host in 2014",
	},
	{
		Syscalls: fields(`keyctl add_key request_key`),
		Why:      "keyrings are shared by all that have one host id, and request_key starts a program of the host",
	},
	{
		Syscalls: fields(`init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct`),
		Why:      "administration of the host's kernel",
	},
	{
		Syscalls: fields(`quotactl quotactl_fd`),
		Why:      "administration of the host's file systems",
	},
	{
		Syscalls: fields(`syslog`),
		Why:      "the kernel's log tells addresses and what other sandboxes do",
	},
	{
		Syscalls: fields(`sethostname setdomainname vhangup`),
		Why:      "need a capability that is not held",
	},
	{
		Syscalls: fields(`settimeofday clock_settime adjtimex clock_adjtime`),
		Why:      "the clock is the host's",
	},
	{
		Syscalls: fields(`mbind get_mempolicy set_mempolicy migrate_pages move_pages`),
		Why:      "placement on NUMA nodes is the operator's; move_pages also tells where pages lie",
	},
	{
		Syscalls: fields(`fanotify_init fanotify_mark`),
		Why:      "watches whole file systems, which the host shares; inotify serves the same purpose",
	},
	{
		Syscalls: fields(`lookup_dcookie nfsservctl`),
		Why:      "removed from the kernel, or for a profiler and a server of the host",
	},
	{
		Syscalls: fields(`iopl ioperm modify_ldt`),
		Arch:     "amd64",
		Why:      "ports of the hardware, and segments, whose entry code had bugs; compat allows modify_ldt for Wine",
	},
	{
		Syscalls: fields(`uprobe uretprobe`),
		Arch:     "amd64",
		Why:      "issued by the kernel's own trampoline; since Linux 6.14 filters do not see it",
	},
	{
		Syscalls: fields(`uselib ustat sysfs`),
		Arch:     "amd64",
		Why:      "obsolete: libraries are mapped, and statfs and /proc/filesystems tell more",
	},
	{
		Syscalls: fields(`_sysctl create_module get_kernel_syms query_module getpmsg putpmsg afs_syscall tuxcall security vserver
			epoll_ctl_old epoll_wait_old get_thread_area set_thread_area`),
		Arch: "amd64",
		Why:  "numbers without a call behind them on this architecture",
	},
}
