//go:build cgo

package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// sinceLinux517 are the names in rules that are newer than libseccomp 2.5.4.
var sinceLinux517 = fields(`
	fchmodat2 cachestat map_shadow_stack
	setxattrat getxattrat listxattrat removexattrat mseal futex_wake futex_wait futex_requeue
	lsm_get_self_attr lsm_set_self_attr lsm_list_modules open_tree_attr file_getattr file_setattr
	listns rseq_slice_yield statmount listmount`)

// probe is an attempt and what must come of it, written by hand from the list of
// isolation probes: it says what the rules are for, and fails if they no longer do it.
type probe struct {
	id                    string
	call                  string
	args                  [6]uint64
	strict, compat, debug verdict
}

// same is a probe on which the profiles agree.
func same(id, call string, want verdict, args ...uint64) probe {
	p := probe{id: id, call: call, strict: want, compat: want, debug: want}
	copy(p.args[:], args)
	return p
}

func differ(id, call string, strict, compat, debug verdict, args ...uint64) probe {
	p := probe{id: id, call: call, strict: strict, compat: compat, debug: debug}
	copy(p.args[:], args)
	return p
}

const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD |
	unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID

func probes() []probe {
	out := []probe{
		same("P007", "clone", allowed, thread),
		same("P007", "clone", allowed, uint64(unix.SIGCHLD)),
		same("P007", "clone", allowed, unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PIDFD|uint64(unix.SIGCHLD)),
		differ("P119", "clone", refused, refused, allowed, unix.CLONE_VM|unix.CLONE_FILES|uint64(unix.SIGCHLD)),
		same("P119", "fcntl", allowed, 3, unix.F_SETLK),
		same("P119", "fcntl", allowed, 3, unix.F_ADD_SEALS),
		same("P119", "fcntl", allowed, 3, unix.F_GETLK),
		same("P119", "fcntl", allowed, 3, 17), // F_GETOWNER_UIDS
		same("P119", "fcntl", "EINVAL", 3, unix.F_OFD_GETLK),
		same("P119", "fcntl", "EINVAL", 3, unix.F_OFD_SETLK),
		same("P119", "fcntl", "EINVAL", 3, unix.F_OFD_SETLKW|1<<32),
		same("P007", "clone3", "ENOSYS"),
		same("P013", "prctl", allowed, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL),
		differ("P013", "prctl", refused, allowed, refused, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE),
		differ("P013", "prctl", refused, allowed, refused, unix.PR_SET_SECUREBITS),
		differ("P013", "prctl", refused, allowed, refused, unix.PR_SET_MM),
		differ("P013", "prctl", refused, allowed, refused, unix.PR_SET_MM|1<<32),
		differ("P024", "name_to_handle_at", refused, allowed, refused),
		same("P028", "socket", allowed, unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC),
		same("P028", "socket", allowed, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC),
		same("P028", "socket", allowed, unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP),
		same("P028", "socket", refused, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		same("P028", "socket", refused, unix.AF_INET, unix.SOCK_STREAM, 256), // SMC over TCP's family
		same("P028", "socket", refused, unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP),
		same("P028", "socket", refused, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_L2TP),
		same("P028", "socketpair", allowed, unix.AF_UNIX, unix.SOCK_STREAM),
		same("P028", "socketpair", refused, unix.AF_INET, unix.SOCK_STREAM),
		same("P030", "socket", refused, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP),
		same("P030", "socket", refused, unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6),
		same("P030", "socket", refused, unix.AF_INET, unix.SOCK_PACKET, 0x300),
		same("P031", "socket", "EACCES", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		same("P032", "setsockopt", allowed, 3, unix.IPPROTO_TCP, unix.TCP_NODELAY),
		same("P032", "setsockopt", allowed, 3, unix.SOL_SOCKET, unix.SO_REUSEADDR),
		same("P032", "setsockopt", allowed, 3, unix.SOL_UDP, unix.TCP_ULP),
		same("P032", "setsockopt", refused, 3, unix.IPPROTO_TCP, unix.TCP_ULP),
		same("P032", "setsockopt", refused, 3, unix.IPPROTO_TCP|1<<40, unix.TCP_ULP|1<<40),
		same("P032", "setsockopt", allowed, 3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY),
		same("P032", "setsockopt", allowed, 3, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP),
		differ("P038", "seccomp", "EINVAL", allowed, "EINVAL", unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC),
		differ("P038", "seccomp", "EINVAL", refused, "EINVAL", unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER),
		differ("P038", "seccomp", "EINVAL", refused, "EINVAL", unix.SECCOMP_SET_MODE_FILTER,
			unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC),
		// That of PID 1, which refuses it from then on: see package listener.
		same("P038", "seccomp", allowed, unix.SECCOMP_SET_MODE_FILTER,
			unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH),
		differ("P038", "prctl", "EINVAL", allowed, "EINVAL", unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER),
		differ("P038", "prctl", "EINVAL", allowed, "EINVAL", unix.PR_SET_SECCOMP|1<<32, unix.SECCOMP_MODE_FILTER|1<<32),
		same("P038", "prctl", allowed, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_STRICT),
		same("P038", "seccomp", allowed, unix.SECCOMP_GET_ACTION_AVAIL),
		differ("P039", "arch_prctl", refused, allowed, refused, 0x5001), // ARCH_SHSTK_ENABLE
		same("P039", "arch_prctl", allowed, 0x1002),                     // ARCH_SET_FS
		same("P157", "ioctl", refused, 0, unix.TIOCSTI),
		same("P157", "ioctl", refused, 0, unix.TIOCSTI|1<<32),
		same("P157", "ioctl", refused, 0, unix.TIOCSETD),
		same("P157", "ioctl", refused, 0, tioclinux),
		same("P157", "ioctl", allowed, 0, unix.TCGETS),
		same("P157", "ioctl", allowed, 0, unix.TIOCGWINSZ),
		same("KSM", "madvise", refused, 0, 0, unix.MADV_MERGEABLE),
		same("KSM", "madvise", allowed, 0, 0, unix.MADV_DONTNEED),
		same("KSM", "madvise", allowed, 0, 0, 102), // MADV_GUARD_INSTALL
		differ("KSM", "prctl", refused, allowed, refused, unix.PR_SET_MEMORY_MERGE, 1),
	}
	out = append(out, refusedOptions()...)
	out = append(out, refusedOutright()...)
	out = append(out, personalities()...)
	out = append(out, limits()...)
	out = append(out, modes()...)
	for bit := range 64 {
		if flag := uint64(1) << bit; flag&0x7e020000 != 0 {
			out = append(out, same("P007", "clone", refused, thread|flag), same("P007", "clone", refused, flag|1<<63))
		}
	}
	for family := range uint64(47) {
		for kind := range uint64(16) {
			switch family {
			case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6:
			case unix.AF_NETLINK:
				out = append(out, netlinkProbes(kind)...)
			default:
				out = append(out, same("P025-P033", "socket", refused, family, kind), same("P028", "socketpair", refused, family, kind))
			}
		}
	}
	return out
}

// netlinkProbes are the attempts to get a netlink socket of one type: of route alone,
// and only of the types that it has.
func netlinkProbes(kind uint64) []probe {
	out := []probe{same("P028", "socketpair", refused, unix.AF_NETLINK, kind)}
	for protocol := range uint64(300) {
		want := refused
		switch {
		case protocol == unix.NETLINK_AUDIT:
			want = "EPROTONOSUPPORT"
		case protocol == unix.NETLINK_ROUTE && (kind == unix.SOCK_RAW || kind == unix.SOCK_DGRAM):
			want = allowed
		}
		for _, flags := range []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
			out = append(out, same("P029", "socket", want, unix.AF_NETLINK, kind|flags, protocol))
		}
		out = append(out, same("P029", "socket", want, 1<<32|unix.AF_NETLINK, 1<<33|kind, 1<<34|protocol))
	}
	return out
}

// refusedOptions take memory of the host that is charged to nobody.
func refusedOptions() []probe {
	var out []probe
	for level, names := range map[uint64][]uint64{
		unix.SOL_SOCKET:   {unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF},
		unix.IPPROTO_TCP:  {unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, 38, 39, 40, 42},
		unix.IPPROTO_IPV6: {unix.IPV6_2292PKTOPTIONS, unix.IPV6_RTHDR, 32},
	} {
		for _, name := range names {
			out = append(out, same("P119", "setsockopt", refused, 3, level, name), same("P119", "setsockopt", refused, 3, 1<<32|level, 1<<33|name))
		}
	}
	for _, name := range []uint64{unix.IPV6_JOIN_GROUP, unix.IPV6_JOIN_ANYCAST, unix.MCAST_JOIN_GROUP, unix.MCAST_JOIN_SOURCE_GROUP} {
		out = append(out, same("P119", "setsockopt", "ENODEV", 3, unix.IPPROTO_IPV6, name))
	}
	return out
}

// refusedOutright are calls that fail whatever their arguments are.
func refusedOutright() []probe {
	var out []probe
	for id, names := range map[string]string{
		"P006": "unshare", "P009": "setns", "P016": "keyctl add_key request_key",
		"P018": "pidfd_getfd kcmp process_madvise process_mrelease",
		"P019": "io_uring_setup io_uring_enter io_uring_register",
		"P020": "fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr mount umount2 pivot_root chroot",
		"P021": "bpf perf_event_open userfaultfd",
		"P022": "init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl syslog sethostname",
		"P023": "clock_settime settimeofday", "P024": "open_by_handle_at", "P039": "iopl ioperm",
		"P040": "mbind migrate_pages move_pages set_mempolicy", "P042": "fanotify_init lookup_dcookie nfsservctl uselib sysfs ustat vhangup",
		"P043": "memfd_secret", "vmsplice": "vmsplice",
	} {
		for _, name := range fields(names) {
			out = append(out, same(id, name, refused), same(id, name, refused, ^uint64(0), ^uint64(0), ^uint64(0)))
		}
	}
	for _, name := range fields("ptrace process_vm_readv process_vm_writev") {
		out = append(out, differ("P017", name, refused, refused, allowed))
	}
	for _, name := range fields("memfd_create execveat landlock_create_ruleset landlock_restrict_self") {
		out = append(out, same("P043", name, allowed))
	}
	return out
}

// limits are the attempts to set the limits of another process, PID 1 first.
func limits() []probe {
	const nofile, pair = uint64(unix.RLIMIT_NOFILE), uint64(0x7ffe_0000_0000)
	out := []probe{
		same("P128", "prlimit64", allowed, 0, nofile, pair),
		same("P128", "prlimit64", allowed, 1<<32, nofile, pair), // the kernel reads 32 bits: the caller
	}
	for _, pid := range []uint64{1, 2, bits32, 1<<32 | 1} {
		out = append(out, same("P128", "prlimit64", refused, pid, nofile, pair))
	}
	return out
}

func personalities() []probe {
	const noRandomize, impliesExec = 0x0040000, 0x0400000 // linux/personality.h
	var out []probe
	for _, v := range []uint64{0, 8, 0x20000, 0x20008, bits32, ^uint64(0)} {
		out = append(out, same("P036", "personality", allowed, v))
	}
	for _, v := range []uint64{noRandomize, impliesExec, 8 | noRandomize, 1 << 31, 0xfffffffe} {
		out = append(out, same("P036", "personality", refused, v))
	}
	return out
}

// modes are the attempts to store a set-id bit, and what must go on working.
func modes() []probe {
	const tmpfile, create = unix.O_TMPFILE | unix.O_RDWR, unix.O_CREAT | unix.O_WRONLY
	var out []probe
	for _, bits := range []uint64{unix.S_ISUID, unix.S_ISGID, unix.S_ISUID | unix.S_ISGID} {
		mode := bits | 0o755
		for _, garbage := range []uint64{0, 1 << 16, 1 << 32} {
			out = append(out,
				differ("set-id", "chmod", refused, allowed, refused, 0, mode|garbage),
				differ("set-id", "fchmod", refused, allowed, refused, 0, mode|garbage),
				differ("set-id", "fchmodat", refused, allowed, refused, 0, 0, mode|garbage),
				differ("set-id", "creat", refused, allowed, refused, 0, mode|garbage),
				differ("set-id", "open", refused, allowed, refused, 0, create, mode|garbage),
				differ("set-id", "openat", refused, allowed, refused, 0, 0, create, mode|garbage),
				differ("set-id", "openat", refused, allowed, refused, 0, 0, tmpfile, mode|garbage),
			)
		}
		out = append(out,
			same("set-id", "open", allowed, 0, unix.O_RDONLY, mode), // the kernel ignores the mode
			same("set-id", "openat", allowed, 0, 0, unix.O_DIRECTORY|unix.O_PATH, mode),
			differ("set-id", "mknodat", refused, allowed, refused, 0, 0, unix.S_IFREG|mode),
			differ("set-id", "mknod", refused, allowed, refused, 0, mode),
		)
	}
	for _, device := range []uint64{unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR, unix.S_IFLNK} {
		out = append(out, differ("P067", "mknod", refused, allowed, refused, 0, device|0o600, 0x103))
	}
	return append(out,
		same("set-id", "chmod", allowed, 0, 0o1777),
		same("set-id", "openat", allowed, 0, 0, create, 0o1777),
		same("set-id", "openat", allowed, 0, 0, tmpfile, 0o600),
		same("P067", "mknod", allowed, 0, unix.S_IFIFO|0o644),
		same("P067", "mknodat", allowed, 0, 0, unix.S_IFSOCK|0o644),
		differ("set-id", "openat2", "ENOSYS", allowed, "ENOSYS"),
	)
}

// numbersIn returns the numbers of an architecture's system calls.
func numbersIn(t *testing.T, arch string) map[string]int {
	t.Helper()
	numbers := map[string]int{}
	for _, c := range calls(t, arch) {
		numbers[c.name] = c.number
	}
	return numbers
}

func TestProbes(t *testing.T) {
	numbers := numbersIn(t, "amd64")
	for _, p := range probes() {
		number, ok := numbers[p.call]
		if !ok {
			t.Fatalf("no call %q", p.call)
		}
		for i, want := range []verdict{p.strict, p.compat, p.debug} {
			v := variant{profiles[i], Options{Arch: "amd64"}}
			if got := compile(t, v).run(t, unix.AUDIT_ARCH_X86_64, number, p.args); got != want {
				t.Errorf("%s: %s: %s(%#x) = %s, want %s", p.id, v, p.call, p.args, got, want)
			}
		}
	}
}

// With a network ping is left to the kernel; nothing more is allowed, of netlink neither.
func TestProbesWithNetwork(t *testing.T) {
	socket := numbersIn(t, "amd64")["socket"]
	for _, p := range profiles {
		m := compile(t, variant{p, Options{Arch: "amd64", Network: true}})
		for _, probe := range []struct {
			args [6]uint64
			want verdict
		}{
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, allowed},
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE}, allowed},
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_STREAM, unix.NETLINK_ROUTE}, refused},
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, "EPROTONOSUPPORT"},
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, refused},
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, refused},
			{[6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, refused},
			{[6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, allowed},
			{[6]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, refused},
			{[6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, refused},
		} {
			if got := m.run(t, unix.AUDIT_ARCH_X86_64, socket, probe.args); got != probe.want {
				t.Errorf("%s: socket(%#x) = %s, want %s", p.Name, probe.args, got, probe.want)
			}
		}
	}
}
