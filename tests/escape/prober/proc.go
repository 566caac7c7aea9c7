package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// masked are the files that tell about the host or act on it. What a kernel
// does not have is the same everywhere: the tests know.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/config.gz", "/proc/driver", "/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/irq",
	"/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/locks",
	"/proc/modules", "/proc/pagetypeinfo", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo", "/proc/sysrq-trigger", "/proc/timer_list",
	"/proc/timer_stats", "/proc/vmallocinfo",
	"/proc/cmdline", "/proc/diskstats", "/proc/partitions", "/proc/pressure", "/proc/vmstat", "/proc/zoneinfo",
}

// sysctls are some that reach beyond a sandbox.
var sysctls = []string{
	"kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/panic", "kernel/randomize_va_space", "kernel/yama/ptrace_scope",
	"kernel/hostname", "kernel/domainname", "kernel/ns_last_pid", "kernel/unprivileged_bpf_disabled", "kernel/kptr_restrict", "kernel/dmesg_restrict",
	"kernel/shmmax", "kernel/msgmni", "kernel/sem", "kernel/printk", "fs/binfmt_misc/register", "fs/suid_dumpable", "fs/protected_symlinks", "fs/mqueue/queues_max",
	"vm/overcommit_memory", "vm/drop_caches", "vm/panic_on_oom", "vm/swappiness", "net/ipv4/ip_forward", "net/ipv4/ping_group_range",
	"net/ipv6/conf/all/forwarding", "net/core/somaxconn", "user/max_user_namespaces",
}

// hidden are the answers to looking into a process that is not to be looked into.
var hidden = []string{"EACCES", "EPERM"}

func procProbes() []probe {
	out := []probe{
		{id: "P051", name: "/proc/sys is read-only", try: mountedReadOnly("/proc/sys"), want: []string{"ro"}},
		{id: "P053", name: "open /proc/sysrq-trigger for writing", try: openForReal("/proc/sysrq-trigger"), want: []string{"masked", "EACCES", "EROFS", "EPERM", "ENOENT"}},
		{id: "P054", name: "physical frame numbers", try: frameNumber, want: []string{"hidden", "EPERM", "EACCES"}},
		{id: "P057", name: "processes of the host", try: seesCanary, want: []string{none}},
		{id: "P057", name: "/proc of a process of the host", try: func() string { return outcome(unix.Access(fmt.Sprintf("/proc/%d", around.pid), unix.F_OK)) }, want: []string{"ENOENT"}},
		{id: "P057", name: "PID 1 is the sandbox's own", try: pid1, want: []string{"caisson-init"}},
		{id: "P058", name: "signal a process of the host", try: func() string { return outcome(unix.Kill(around.pid, 0)) }, want: []string{"ESRCH"}},
		{id: "P058", name: "queue a signal to a process of the host", try: queueSignal, want: []string{"ESRCH"}},
		{id: "P058", name: "pidfd of a process of the host", try: hostPIDFD, want: []string{"ESRCH"}},
		{id: "P072", name: "path of the control group", try: cgroupPath, want: []string{"/", "0::/init"}}, // the leaf of PID 1 on v2
		{id: "P075", name: "environment of the caller", try: canaryInEnvironment, want: []string{none}},
		{id: "P059", name: "write to the text of a running program's file", try: textStaysPrivate, want: []string{"private"}},
	}
	for _, name := range []string{"cpu", "io", "memory"} {
		out = append(out, probe{id: "P050", name: "open a trigger of /proc/pressure/" + name, try: openForReal("/proc/pressure/" + name), want: []string{"ENOENT"}})
	}
	for _, path := range masked {
		out = append(out, probe{id: "P050", name: "read " + path, try: peek(path), want: []string{"empty", "ENOENT", "EACCES"}})
	}
	for _, name := range sysctls {
		out = append(out, probe{id: "P052", name: "open sysctl " + name, try: func() string { return tryOpen("/proc/sys/"+name, unix.O_WRONLY) }, want: append([]string{"ENOENT"}, readOnly...)})
	}
	for _, name := range []string{"environ", "root", "cwd", "exe", "fd", "mem", "maps", "auxv", "syscall", "map_files", "fdinfo"} {
		out = append(out, probe{id: "P057", name: "look into PID 1's " + name, try: lookInto(name), want: hidden})
	}
	for _, name := range []string{"comm", "oom_score_adj"} {
		out = append(out, probe{id: "P057", name: "open PID 1's " + name + " for writing", try: func() string { return tryOpen(ofInit(name), unix.O_WRONLY) }, want: hidden})
	}
	for _, ns := range []string{"mnt", "net", "user", "pid"} {
		out = append(out, probe{id: "P009", name: "open PID 1's namespace " + ns, try: lookInto("ns/" + ns), want: hidden})
	}
	return out
}

// mountedReadOnly says how the path is mounted, whatever the rights of a file
// below it are.
func mountedReadOnly(path string) func() string {
	return func() string {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return outcome(err)
		}
		if st.Flags&unix.ST_RDONLY != 0 {
			return "ro"
		}
		return "rw"
	}
}

// openForReal opens a file for writing, writes nothing, and says whether it is
// only /dev/null laid over it.
func openForReal(path string) func() string {
	return func() string {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return outcome(err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return outcome(err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
			return "masked"
		}
		return ok
	}
}

// peek says whether there is something to read.
func peek(path string) func() string {
	return func() string {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == unix.EACCES && openForReal(path)() == ok {
			return "writable"
		}
		if err != nil {
			return outcome(err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return outcome(err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return emptyOr(entries(path)(), none)
		}
		if path == "/proc/kmsg" && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return "a log" // reading would take lines from the host's log daemon
		}
		var b [16]byte
		n, err := unix.Read(fd, b[:])
		if n == 0 && err == nil {
			return "empty"
		}
		if openForReal(path)() == ok {
			return "writable"
		}
		return fmt.Sprintf("%d bytes, %s", n, outcome(err))
	}
}

func emptyOr(got, empty string) string {
	if got == empty {
		return "empty"
	}
	return got
}

// frameNumber asks where a page of this process lies in physical memory
// (Documentation/admin-guide/mm/pagemap.rst).
func frameNumber() string {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return outcome(err)
	}
	defer f.Close()
	page := make([]byte, 2*os.Getpagesize())
	page[os.Getpagesize()] = 1
	var entry [8]byte
	at := uintptr(unsafe.Pointer(&page[os.Getpagesize()])) / uintptr(os.Getpagesize())
	if _, err := f.ReadAt(entry[:], int64(at)*8); err != nil {
		return outcome(err)
	}
	if binary.NativeEndian.Uint64(entry[:])&(1<<55-1) == 0 {
		return "hidden"
	}
	return "told"
}

// seesCanary looks for a process of the host by the hash of its argument, so
// that looking leaves no copy of it.
func seesCanary() string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		for arg := range strings.SplitSeq(readText(f), "\x00") {
			if sum := sha256.Sum256([]byte(arg)); hex.EncodeToString(sum[:]) == around.canary {
				return f
			}
		}
	}
	return none
}

func pid1() string { return strings.TrimSpace(readText("/proc/1/comm")) }

// queueSignal sends signal 0 with rt_sigqueueinfo(2).
func queueSignal() string {
	var info [128]byte
	binary.NativeEndian.PutUint32(info[8:], ^uint32(0)) // si_code SI_QUEUE
	return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(around.pid), 0, uintptr(unsafe.Pointer(&info[0])))
}

func hostPIDFD() string {
	fd, err := unix.PidfdOpen(around.pid, 0)
	if err != nil {
		return outcome(err)
	}
	_ = unix.Close(fd)
	return ok
}

func cgroupPath() string {
	for line := range strings.Lines(readText("/proc/self/cgroup")) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) != 3 || f[2] != "/" {
			return strings.TrimSpace(line)
		}
	}
	return "/"
}

// canaryInEnvironment looks into every environment that can be read for the
// variable that callers of this program's runs are given.
func canaryInEnvironment() string {
	const name = "HOST_CANARY="
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if contains(f, name) {
			return f
		}
	}
	return none
}

// ofInit is a path in PID 1's directory of /proc.
func ofInit(name string) string { return filepath.Join("/proc", strconv.Itoa(around.initPID), name) }

// lookInto opens what /proc has of PID 1, and reads nothing of it.
func lookInto(name string) func() string {
	path := ofInit(name)
	return func() string {
		switch name {
		case "root", "cwd", "exe":
			var b [4096]byte
			_, err := unix.Readlink(path, b[:])
			return outcome(err)
		case "fd", "map_files", "fdinfo":
			_, err := os.ReadDir(path)
			return outcome(err)
		case "syscall": // the rights are looked at when it is read
			_, err := os.ReadFile(path)
			return outcome(err)
		}
		return tryOpen(path, unix.O_RDONLY)
	}
}

// textStaysPrivate overwrites a byte of its own code by way of /proc/self/mem,
// which goes past the page's protection, and looks whether the file has it.
func textStaysPrivate() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return outcome(err)
	}
	defer f.Close()
	text, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return outcome(err)
	}
	defer syscall.Munmap(text)
	const at = 9 // padding of the ELF header (elf(5))
	before := text[at]
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return outcome(err)
	}
	defer mem.Close()
	if _, err := mem.WriteAt([]byte{before ^ 0xff}, int64(uintptr(unsafe.Pointer(&text[at])))); err != nil {
		return outcome(err)
	}
	var stored [1]byte
	if _, err := f.ReadAt(stored[:], at); err != nil {
		return outcome(err)
	}
	if stored[0] == before {
		return "private"
	}
	return "the file has changed"
}
