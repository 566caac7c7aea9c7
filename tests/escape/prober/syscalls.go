package main

import "golang.org/x/sys/unix"

// Calls that golang.org/x/sys/unix does not name on every architecture. Since
// Linux 5.1 a new call has one number on all of them.
const (
	sysProcessMrelease  = 448
	sysMemfdSecret      = 447
	sysQuotactlFD       = 443
	sysFchmodat2        = 452
	sysLSMGetSelfAttr   = 459
	sysLSMSetSelfAttr   = 460
	sysOpenTreeAttr     = 467
	sysSetMempolicyHome = 450
)

// call is an attempt by one system call whose arguments no kernel accepts: it
// answers EFAULT, EBADF, EINVAL, ESRCH or ENOENT where the call is reached.
type call struct {
	id, name string
	nr       uintptr
	args     []uintptr
	want     string // empty is EPERM
}

// Arguments that are wrong.
const (
	badPointer = ^uintptr(4095) // the last page: of the kernel
	badFlags   = ^uintptr(0) >> 1
)

// portableCalls exist on every architecture.
var portableCalls = []call{
	{id: "P006", name: "unshare(CLONE_NEWUSER|bad)", nr: unix.SYS_UNSHARE, args: []uintptr{unix.CLONE_NEWUSER | 1<<1}},
	{id: "P007", name: "clone3", nr: unix.SYS_CLONE3, args: []uintptr{badPointer, 0}, want: "ENOSYS"},
	{id: "P009", name: "setns(-1, CLONE_NEWNS)", nr: unix.SYS_SETNS, args: []uintptr{badFD, unix.CLONE_NEWNS}},
	{id: "P009", name: "setns(-1, 0)", nr: unix.SYS_SETNS, args: []uintptr{badFD, 0}},

	{id: "P017", name: "ptrace(ATTACH, -1)", nr: unix.SYS_PTRACE, args: []uintptr{unix.PTRACE_ATTACH, badFD}},
	{id: "P017", name: "ptrace(SEIZE, -1)", nr: unix.SYS_PTRACE, args: []uintptr{unix.PTRACE_SEIZE, badFD}},
	{id: "P017", name: "ptrace(PEEKDATA, -1)", nr: unix.SYS_PTRACE, args: []uintptr{unix.PTRACE_PEEKDATA, badFD}},
	{id: "P017", name: "process_vm_readv", nr: unix.SYS_PROCESS_VM_READV, args: []uintptr{badFD, 0, 0, 0, 0, 1}},
	{id: "P017", name: "process_vm_writev", nr: unix.SYS_PROCESS_VM_WRITEV, args: []uintptr{badFD, 0, 0, 0, 0, 1}},
	{id: "P018", name: "pidfd_getfd", nr: unix.SYS_PIDFD_GETFD, args: []uintptr{badFD, badFD, 1}},
	{id: "P018", name: "kcmp", nr: unix.SYS_KCMP, args: []uintptr{badFD, badFD, 0}},
	{id: "P018", name: "process_madvise", nr: unix.SYS_PROCESS_MADVISE, args: []uintptr{badFD, 0, 0, 0, 1}},
	{id: "P018", name: "process_mrelease", nr: sysProcessMrelease, args: []uintptr{badFD, 1}},
	{id: "P019", name: "io_uring_setup", nr: unix.SYS_IO_URING_SETUP, args: []uintptr{0, badPointer}},
	{id: "P019", name: "io_uring_enter", nr: unix.SYS_IO_URING_ENTER, args: []uintptr{badFD, 0, 0, badFlags}},
	{id: "P019", name: "io_uring_register", nr: unix.SYS_IO_URING_REGISTER, args: []uintptr{badFD, badFlags}},

	{id: "P020", name: "mount", nr: unix.SYS_MOUNT, args: []uintptr{badPointer, badPointer, badPointer, 0, 0}},
	{id: "P020", name: "umount2", nr: unix.SYS_UMOUNT2, args: []uintptr{badPointer, badFlags}},
	{id: "P020", name: "pivot_root", nr: unix.SYS_PIVOT_ROOT, args: []uintptr{badPointer, badPointer}},
	{id: "P020", name: "chroot", nr: unix.SYS_CHROOT, args: []uintptr{badPointer}},
	{id: "P020", name: "fsopen", nr: unix.SYS_FSOPEN, args: []uintptr{badPointer, 0}},
	{id: "P020", name: "fsconfig", nr: unix.SYS_FSCONFIG, args: []uintptr{badFD, badFlags}},
	{id: "P020", name: "fsmount", nr: unix.SYS_FSMOUNT, args: []uintptr{badFD, badFlags}},
	{id: "P020", name: "fspick", nr: unix.SYS_FSPICK, args: []uintptr{badFD, badPointer, badFlags}},
	{id: "P020", name: "open_tree", nr: unix.SYS_OPEN_TREE, args: []uintptr{badFD, badPointer, badFlags}},
	{id: "P020", name: "open_tree_attr", nr: sysOpenTreeAttr, args: []uintptr{badFD, badPointer, badFlags}, want: "ENOSYS"},
	{id: "P020", name: "move_mount", nr: unix.SYS_MOVE_MOUNT, args: []uintptr{badFD, badPointer, badFD, badPointer, badFlags}},
	{id: "P020", name: "mount_setattr", nr: unix.SYS_MOUNT_SETATTR, args: []uintptr{badFD, badPointer, badFlags}},

	{id: "P021", name: "bpf(-1)", nr: unix.SYS_BPF, args: []uintptr{badFD, 0, 0}},
	{id: "P021", name: "bpf(BPF_MAP_CREATE)", nr: unix.SYS_BPF, args: []uintptr{unix.BPF_MAP_CREATE, badPointer, 8}},
	{id: "P021", name: "bpf(BPF_PROG_LOAD)", nr: unix.SYS_BPF, args: []uintptr{unix.BPF_PROG_LOAD, badPointer, 8}},
	{id: "P021", name: "perf_event_open", nr: unix.SYS_PERF_EVENT_OPEN, args: []uintptr{badPointer, 0, 0, badFD, badFlags}},
	{id: "P021", name: "userfaultfd", nr: unix.SYS_USERFAULTFD, args: []uintptr{badFlags}},

	{id: "P022", name: "init_module", nr: unix.SYS_INIT_MODULE, args: []uintptr{badPointer, 0, badPointer}},
	{id: "P022", name: "finit_module", nr: unix.SYS_FINIT_MODULE, args: []uintptr{badFD, badPointer, badFlags}},
	{id: "P022", name: "delete_module", nr: unix.SYS_DELETE_MODULE, args: []uintptr{badPointer, 0}},
	{id: "P022", name: "kexec_load", nr: unix.SYS_KEXEC_LOAD, args: []uintptr{0, 1 << 20, badPointer, badFlags}},
	{id: "P022", name: "kexec_file_load", nr: unix.SYS_KEXEC_FILE_LOAD, args: []uintptr{badFD, badFD, 0, 0, badFlags}},
	{id: "P022", name: "reboot", nr: unix.SYS_REBOOT, args: []uintptr{0, 0, 0}},
	{id: "P022", name: "swapon", nr: unix.SYS_SWAPON, args: []uintptr{badPointer, badFlags}},
	{id: "P022", name: "swapoff", nr: unix.SYS_SWAPOFF, args: []uintptr{badPointer}},
	{id: "P022", name: "acct", nr: unix.SYS_ACCT, args: []uintptr{badPointer}},
	{id: "P022", name: "quotactl", nr: unix.SYS_QUOTACTL, args: []uintptr{badFD, badPointer, 0, 0}},
	{id: "P022", name: "quotactl_fd", nr: sysQuotactlFD, args: []uintptr{badFD, badFD, 0, 0}},
	{id: "P022", name: "syslog", nr: unix.SYS_SYSLOG, args: []uintptr{3, 0, badFD}},
	{id: "P022", name: "sethostname", nr: unix.SYS_SETHOSTNAME, args: []uintptr{badPointer, badFD}},
	{id: "P022", name: "setdomainname", nr: unix.SYS_SETDOMAINNAME, args: []uintptr{badPointer, badFD}},
	{id: "P023", name: "settimeofday(NULL)", nr: unix.SYS_SETTIMEOFDAY, args: []uintptr{0, 0}},
	{id: "P023", name: "clock_settime", nr: unix.SYS_CLOCK_SETTIME, args: []uintptr{unix.CLOCK_REALTIME, badPointer}},
	{id: "P023", name: "adjtimex", nr: unix.SYS_ADJTIMEX, args: []uintptr{badPointer}},
	{id: "P023", name: "clock_adjtime", nr: unix.SYS_CLOCK_ADJTIME, args: []uintptr{unix.CLOCK_REALTIME, badPointer}},
	{id: "P024", name: "name_to_handle_at", nr: unix.SYS_NAME_TO_HANDLE_AT, args: []uintptr{badFD, badPointer, badPointer, badPointer, badFlags}},
	{id: "P024", name: "open_by_handle_at", nr: unix.SYS_OPEN_BY_HANDLE_AT, args: []uintptr{badFD, badPointer, 0}},

	{id: "P036", name: "personality(ADDR_NO_RANDOMIZE)", nr: unix.SYS_PERSONALITY, args: []uintptr{0x0040000}},
	{id: "P036", name: "personality(READ_IMPLIES_EXEC)", nr: unix.SYS_PERSONALITY, args: []uintptr{0x0400000}},
	{id: "P040", name: "mbind", nr: unix.SYS_MBIND, args: []uintptr{badPointer, 4096, badFD, 0, 0, badFlags}},
	{id: "P040", name: "migrate_pages", nr: unix.SYS_MIGRATE_PAGES, args: []uintptr{badFD, 1, badPointer, badPointer}},
	{id: "P040", name: "move_pages", nr: unix.SYS_MOVE_PAGES, args: []uintptr{badFD, 1, badPointer, 0, 0, badFlags}},
	{id: "P040", name: "set_mempolicy", nr: unix.SYS_SET_MEMPOLICY, args: []uintptr{badFD, 0, 0}},
	{id: "P040", name: "set_mempolicy_home_node", nr: sysSetMempolicyHome, args: []uintptr{badPointer, 0, 0, badFlags}, want: "ENOSYS"},
	{id: "P042", name: "fanotify_init", nr: unix.SYS_FANOTIFY_INIT, args: []uintptr{badFlags, 0}},
	{id: "P042", name: "fanotify_mark", nr: unix.SYS_FANOTIFY_MARK, args: []uintptr{badFD, badFlags, 0, badFD, badPointer}},
	{id: "P042", name: "vhangup", nr: unix.SYS_VHANGUP}, // controls have no terminal
	{id: "P042", name: "lookup_dcookie", nr: unix.SYS_LOOKUP_DCOOKIE, args: []uintptr{badFD, badPointer, 0}},
	{id: "P042", name: "nfsservctl", nr: unix.SYS_NFSSERVCTL, args: []uintptr{badFD, 0, 0}},
	{id: "P042", name: "lsm_get_self_attr", nr: sysLSMGetSelfAttr, args: []uintptr{badFD, badPointer, badPointer, badFlags}, want: "ENOSYS"},
	{id: "P042", name: "lsm_set_self_attr", nr: sysLSMSetSelfAttr, args: []uintptr{badFD, badPointer, 0, badFlags}, want: "ENOSYS"},
	{id: "P043", name: "memfd_secret", nr: sysMemfdSecret, args: []uintptr{badFlags}},
	{id: "P043", name: "vmsplice", nr: unix.SYS_VMSPLICE, args: []uintptr{badFD, badPointer, 1, badFlags}},
}

// namespaceFlags are those of clone(2).
var namespaceFlags = []struct {
	name string
	flag uintptr
}{
	{"CLONE_NEWNS", unix.CLONE_NEWNS}, {"CLONE_NEWCGROUP", unix.CLONE_NEWCGROUP}, {"CLONE_NEWUTS", unix.CLONE_NEWUTS},
	{"CLONE_NEWIPC", unix.CLONE_NEWIPC}, {"CLONE_NEWUSER", unix.CLONE_NEWUSER}, {"CLONE_NEWPID", unix.CLONE_NEWPID},
	{"CLONE_NEWNET", unix.CLONE_NEWNET},
}

func callProbes() []probe {
	var out []probe
	for _, c := range append(portableCalls, machineCalls...) {
		want := c.want
		if want == "" {
			want = "EPERM"
		}
		out = append(out, probe{id: c.id, name: c.name, try: func() string { return raw(c.nr, c.args...) }, want: []string{want}})
	}
	for _, n := range namespaceFlags {
		out = append(out,
			// A thread without shared signal handlers is impossible (clone(2)).
			probe{id: "P007", name: "clone(" + n.name + ")", want: refused,
				try: func() string { return raw(unix.SYS_CLONE, n.flag|unix.CLONE_THREAD) }},
			// A real one: its thread is thrown away.
			probe{id: "P006", name: "unshare(" + n.name + ")", want: refused,
				try: func() string { return raw(unix.SYS_UNSHARE, n.flag) }})
	}
	return append(out,
		probe{id: "P009", name: "enter the namespaces of a process", try: enterByPIDFD, want: refused},
		probe{id: "P038", name: "allow everything by a filter of one's own", try: relax, want: append([]string{"filter not loaded: EINVAL"}, refused...), alone: true},
		probe{id: "P038", name: "seccomp(NEW_LISTENER)", want: append([]string{"EINVAL"}, refused...), try: func() string {
			return raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, badPointer)
		}},
		probe{id: "P038", name: "seccomp(SET_MODE_FILTER)", try: ownFilter(unix.SYS_SECCOMP), want: []string{"EINVAL"}, alone: true},
		probe{id: "P038", name: "prctl(PR_SET_SECCOMP)", try: ownFilter(unix.SYS_PRCTL), want: []string{"EINVAL"}, alone: true},
	)
}

// enterByPIDFD enters only the uts namespace: harmless where it succeeds.
func enterByPIDFD() string {
	fd, err := unix.PidfdOpen(around.initPID, 0)
	if err != nil {
		return "no pidfd: " + outcome(err)
	}
	defer unix.Close(fd)
	return raw(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWUTS)
}
