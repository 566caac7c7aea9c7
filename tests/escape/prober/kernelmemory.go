package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options that x/sys has no name for (linux/tcp.h, linux/in6.h).
const (
	tcpAOAddKey   = 38
	tcpAOInfo     = 40
	ipv6FlowLabel = 32
)

// kernelMemoryProbes are options of sockets that take kernel memory of the host
// and are charged to no cgroup.
func kernelMemoryProbes() []probe {
	out := []probe{
		{id: "P119", name: "join a group of IPv6", try: joinIPv6, want: []string{"ENODEV"}},
		{id: "P119", name: "attach a filter to a socket", try: attachFilter, want: refused},
	}
	for _, o := range []struct {
		name          string
		family        int
		level, option uintptr
	}{
		{"SO_ATTACH_BPF", unix.AF_INET, unix.SOL_SOCKET, unix.SO_ATTACH_BPF},
		{"SO_ATTACH_REUSEPORT_CBPF", unix.AF_INET, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF},
		{"SO_ATTACH_REUSEPORT_EBPF", unix.AF_INET, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF},
		{"TCP_MD5SIG", unix.AF_INET, unix.IPPROTO_TCP, unix.TCP_MD5SIG},
		{"TCP_MD5SIG_EXT", unix.AF_INET, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT},
		{"TCP_AO_ADD_KEY", unix.AF_INET, unix.IPPROTO_TCP, tcpAOAddKey},
		{"TCP_AO_INFO", unix.AF_INET, unix.IPPROTO_TCP, tcpAOInfo},
		{"IPV6_2292PKTOPTIONS", unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_2292PKTOPTIONS},
		{"IPV6_RTHDR", unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_RTHDR},
		{"IPV6_FLOWLABEL_MGR", unix.AF_INET6, unix.IPPROTO_IPV6, ipv6FlowLabel},
	} {
		out = append(out, probe{id: "P119", name: "setsockopt(" + o.name + ")", want: refused, try: func() string {
			fd, err := unix.Socket(o.family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return "no socket: " + outcome(err)
			}
			defer unix.Close(fd)
			return raw(unix.SYS_SETSOCKOPT, uintptr(fd), o.level, o.option, badPointer, 0)
		}})
	}
	return out
}

func joinIPv6() string {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "no socket: " + outcome(err)
	}
	defer unix.Close(fd)
	group := unix.IPv6Mreq{Multiaddr: [16]byte{0xff, 0x12, 15: 1}, Interface: 1} // the loopback
	return outcome(unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &group))
}

func attachFilter() string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "no socket: " + outcome(err)
	}
	defer unix.Close(fd)
	return outcome(unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filterProgram(1)))
}

// What a sandbox is ended for, and how long the prober waits for that.
const (
	manyLocks      = 30_000
	muchUnaccepted = 128 << 20
	untilEnded     = time.Minute // on a slow machine the daemon looks every 20 s
)

// holdLocks takes byte-range locks, of many files: the kernel walks those of a file.
func holdLocks(dir string) (int, error) {
	for n := 0; n < manyLocks; {
		f, err := os.Create(fmt.Sprintf("%s/%d", dir, n))
		if err != nil {
			return n, err
		}
		for i := range 1000 {
			lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}
			if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
				return n, err
			}
			n++
		}
		defer f.Close()
	}
	awaitEnd()
	return manyLocks, nil
}

// What fills /proc/locks as far as anybody would read it: locks of files, by children.
const (
	lockers      = 35
	filesOfChild = 2000
)

// hideLocks takes locks of files on the first processor and those of byte ranges on the
// second: the kernel lists the former before the latter.
func hideLocks(dir string) (int, error) {
	limit := unix.Rlimit{Cur: 2 * filesOfChild, Max: 2 * filesOfChild}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	var paths []*byte // one for each child: the kernel compares a lock with those of its file
	for i := range lockers {
		name := fmt.Sprintf("%s/files-%d", dir, i)
		path, err := unix.BytePtrFromString(name)
		if err := errors.Join(err, os.WriteFile(name, nil, 0o644)); err != nil {
			return 0, err
		}
		paths = append(paths, path)
	}
	done, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the children have no other threads
	defer onProcessor(0)()
	for _, path := range paths {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0:
			return 0, errno
		case pid == 0: // it has the memory of this program, and none of its threads
			lockFiles(path, done)
		}
		defer unix.Kill(int(pid), unix.SIGKILL)
	}
	if err := awaitChildren(done, lockers); err != nil {
		return 0, err
	}
	defer onProcessor(1)()
	return holdLocks(dir)
}

// awaitChildren waits until n children have added one to an eventfd.
func awaitChildren(done, n int) error {
	var one [8]byte
	for deadline := time.Now().Add(untilEnded); n > 0; { // slow where a processor is emulated
		switch _, err := unix.Read(done, one[:]); {
		case err == nil:
			n--
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%d children took no locks", n)
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// lockFiles never returns. It may use nothing of Go's runtime, nor ask whether its stack
// is large enough: that is also where a goroutine gives way to others.
//
//go:nosplit
func lockFiles(path *byte, done int) {
	at := unix.AT_FDCWD
	for range filesOfChild {
		fd, _, _ := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(path)), unix.O_RDONLY, 0, 0, 0)
		unix.RawSyscall(unix.SYS_FLOCK, fd, unix.LOCK_SH, 0)
	}
	one := uint64(1)
	unix.RawSyscall(unix.SYS_WRITE, uintptr(done), uintptr(unsafe.Pointer(&one)), 8)
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// onProcessor moves the thread to a processor, where it may, and back.
func onProcessor(n int) (back func()) {
	var before, only unix.CPUSet
	_ = unix.SchedGetaffinity(0, &before)
	only.Set(n)
	_ = unix.SchedSetaffinity(0, &only)
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}

// holdUnaccepted makes connections that nobody accepts, and counts what they took.
func holdUnaccepted(string) (int, error) {
	block := make([]byte, 64<<10)
	for n := 0; n < muchUnaccepted; {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return n, err
		}
		defer l.Close()
		for range 100 {
			m, err := sendAndLeave(l.Addr().String(), block)
			if n += m; err != nil {
				return n, err
			}
		}
	}
	awaitEnd()
	return muchUnaccepted, nil
}

// sendAndLeave sends as much of the block as is taken at once, and closes.
func sendAndLeave(address string, block []byte) (n int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Write(func(fd uintptr) bool {
		n, _ = unix.SendmsgN(int(fd), block, nil, nil, unix.MSG_DONTWAIT)
		return true
	})
	return n, err
}

// awaitEnd waits for the end of the sandbox. Nobody ends the control, which is root's.
func awaitEnd() {
	if os.Geteuid() != 0 {
		time.Sleep(untilEnded)
	}
}
