//go:build cgo

package seccomp

import (
	"bytes"
	"encoding/binary"
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// assembled loads p as Assemble makes it.
func assembled(t *testing.T, p Profile) machine {
	t.Helper()
	raw, err := p.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, raw); err != nil {
		t.Fatal(err)
	}
	return machine{nil, load(t, b.Bytes())}
}

// The filters that programs put on themselves, as they are assembled and as libseccomp compiles
// them, decide as the rules say: on every call and many arguments.
func TestAssembledMeansTheRules(t *testing.T) {
	for _, p := range []Profile{Gateway(), Images()} {
		v := variant{p, Options{Arch: goruntime.GOARCH}}
		own, theirs, native := assembled(t, v.Profile), compile(t, v), auditArch[v.Arch]
		few := samples(v.Profile, 64)
		for _, c := range calls(t, v.Arch) {
			rules := v.ruling(c.name)
			for _, args := range rules.vectors(few) {
				want := rules.decide(args)
				if got := own.run(t, native, c.number, args); got != want {
					t.Fatalf("%s: %s(%#x) = %s, want %s", p.Name, c.name, args, got, want)
				}
				if got := theirs.run(t, native, c.number, args); got != want {
					t.Fatalf("%s: libseccomp: %s(%#x) = %s, want %s", p.Name, c.name, args, got, want)
				}
			}
		}
	}
}

func TestAssembledRefusesOtherTables(t *testing.T) {
	m, native := assembled(t, Gateway()), auditArch[goruntime.GOARCH]
	known := map[int]bool{}
	for _, c := range calls(t, goruntime.GOARCH) {
		known[c.number] = true
	}
	for number := range 1024 {
		if got := m.run(t, native, number, [6]uint64{}); !known[number] && got != refused {
			t.Errorf("unassigned call %d = %s", number, got)
		}
		for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0, ^uint32(0)} {
			if got := m.run(t, arch, number, [6]uint64{}); got != "kill" {
				t.Errorf("call %d of architecture %#x = %s", number, arch, got)
			}
		}
		for _, table := range []int{x32, 1 << 31} {
			if got := m.run(t, native, table|number, [6]uint64{}); got != "kill" {
				t.Errorf("call %#x = %s", table|number, got)
			}
		}
	}
}

// What the rules are for, by hand.
func TestGatewayFilterProbes(t *testing.T) {
	m := assembled(t, Gateway())
	table := map[string]int{}
	for _, c := range calls(t, goruntime.GOARCH) {
		table[c.name] = c.number
	}
	for _, name := range fields(`execve execveat fork vfork clone3 ptrace process_vm_readv process_vm_writev kill tkill pidfd_open pidfd_getfd
		open openat openat2 creat memfd_create name_to_handle_at open_by_handle_at readlink readlinkat stat newfstatat getdents64
		mount umount2 pivot_root chroot chdir unshare setns fsopen move_mount open_tree
		bind listen socketpair accept setuid setgid setresuid capset mprotect mremap shmget bpf perf_event_open
		io_uring_setup keyctl add_key userfaultfd ioctl sendmmsg setrlimit prlimit64 seccomp syslog init_module kexec_load`) {
		number, known := table[name]
		if !known {
			continue // of the other architecture
		}
		for _, args := range samples(Gateway(), 50) {
			if got := m.run(t, auditArch[goruntime.GOARCH], number, args); got != refused {
				t.Errorf("%s(%#x) = %s", name, args, got)
			}
		}
	}
	for _, p := range []probe{
		same("", "socket", allowed, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC),
		same("", "socket", allowed, unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC),
		same("", "socket", refused, unix.AF_UNIX, unix.SOCK_STREAM),
		same("", "socket", refused, unix.AF_NETLINK, unix.SOCK_RAW),
		same("", "socket", refused, unix.AF_PACKET, unix.SOCK_RAW),
		same("", "socket", refused, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		same("", "socket", refused, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		same("", "socket", refused, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		same("", "mmap", allowed, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE),
		same("", "mmap", refused, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE),
		same("", "mmap", refused, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE),
		same("", "clone", allowed, goThread),
		same("", "clone", allowed, goThread|unix.CLONE_SETTLS),
		same("", "clone", refused, uint64(unix.SIGCHLD)),
		same("", "clone", refused, goThread|unix.CLONE_NEWUSER),
		same("", "fcntl", refused, 0, unix.F_SETOWN),
		same("", "setsockopt", allowed, 3, unix.SOL_SOCKET, unix.SO_BUF_LOCK),
		same("", "setsockopt", allowed, 3, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP),
		same("", "setsockopt", refused, 3, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE),
		same("", "setsockopt", refused, 3, unix.IPPROTO_TCP, unix.TCP_ULP),
		same("", "setsockopt", refused, 3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER),
		same("", "setsockopt", refused, 3, unix.SOL_IP, unix.IP_TRANSPARENT),
		same("", "prctl", "EINVAL", unix.PR_SET_VMA),
	} {
		if got := m.run(t, auditArch[goruntime.GOARCH], table[p.call], p.args); got != p.strict {
			t.Errorf("%s(%#x) = %s, want %s", p.call, p.args, got, p.strict)
		}
	}
}

// What parses images opens nothing, calls nobody, and starts nothing.
func TestImagesFilterProbes(t *testing.T) {
	m := assembled(t, Images())
	table := map[string]int{}
	for _, c := range calls(t, goruntime.GOARCH) {
		table[c.name] = c.number
	}
	for _, name := range fields(`execve execveat fork vfork ptrace process_vm_readv process_vm_writev kill tkill pidfd_open pidfd_getfd
		open openat openat2 creat memfd_create name_to_handle_at open_by_handle_at readlink readlinkat stat newfstatat getdents64
		mount umount2 pivot_root chroot chdir unshare setns fsopen move_mount open_tree fchown fchmod flock
		socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg recvmmsg shutdown setsockopt pipe2 dup dup3 splice
		setuid setgid setresuid capset mremap shmget bpf perf_event_open
		io_uring_setup keyctl add_key userfaultfd ioctl setrlimit prlimit64 seccomp syslog init_module kexec_load`) {
		number, known := table[name]
		if !known {
			continue // of the other architecture
		}
		for _, args := range samples(Images(), 50) {
			if got := m.run(t, auditArch[goruntime.GOARCH], number, args); got != refused {
				t.Errorf("%s(%#x) = %s", name, args, got)
			}
		}
	}
	for _, p := range []probe{
		same("", "clone", allowed, goThread|cThread),
		same("", "clone", refused, uint64(unix.SIGCHLD)),
		same("", "clone", refused, goThread|unix.CLONE_NEWUSER),
		same("", "clone3", "ENOSYS"),
		same("", "mprotect", allowed, 0, 4096, unix.PROT_READ|unix.PROT_WRITE),
		same("", "mprotect", refused, 0, 4096, unix.PROT_READ|unix.PROT_EXEC),
		same("", "fcntl", refused, 0, unix.F_SETOWN),
		same("", "fcntl", refused, 0, unix.F_DUPFD_CLOEXEC),
	} {
		if got := m.run(t, auditArch[goruntime.GOARCH], table[p.call], p.args); got != p.strict {
			t.Errorf("%s(%#x) = %s, want %s", p.call, p.args, got, p.strict)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range calls(t, goruntime.GOARCH) {
		if n, known := numbers[c.name]; known && n != uint32(c.number) {
			t.Errorf("%s is %d, not %d", c.name, c.number, n)
		}
	}
}

func TestEveryRuleHasItsReason(t *testing.T) {
	for _, p := range []Profile{Gateway(), Images()} {
		if err := p.check(Options{}); err != nil {
			t.Error(err)
		}
	}
}
