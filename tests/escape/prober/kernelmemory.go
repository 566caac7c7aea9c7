package main

import (
	"fmt"
	"net"
	"os"
	"time"

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
	untilEnded     = 10 * time.Second
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
