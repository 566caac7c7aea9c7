package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eaters each take one more piece of the kernel's memory, and keep it.
var eaters = map[string]func(n int) error{
	"pipes":       eatPipe,
	"unix stream": func(int) error { return eatPair(unix.SOCK_STREAM) },
	"unix dgram":  func(int) error { return eatPair(unix.SOCK_DGRAM) },
	"unix packet": func(int) error { return eatPair(unix.SOCK_SEQPACKET) },
	"descriptors": eatRights,
	"udp":         func(int) error { return eatUDP("udp4", "127.0.0.1:0") },
	"udp6":        func(int) error { return eatUDP("udp6", "[::1]:0") },
	"tcp":         eatTCP,
	"other sockets": func(n int) error {
		family := []int{unix.AF_NETLINK, unix.AF_PACKET, unix.AF_KEY, unix.AF_ALG, unix.AF_VSOCK, unix.AF_TIPC, unix.AF_SMC, unix.AF_XDP, unix.AF_RDS, unix.AF_CAN, unix.AF_QIPCRTR}[n%11]
		_, err := unix.Socket(family, unix.SOCK_RAW, 0)
		return err
	},
	"socket filters": func(int) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filterProgram(500))
	},
	"flock":  func(n int) error { return eatFile(n, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX) }) },
	"leases": func(n int) error { return eatFile(n, func(fd int) error { return setLease(fd) }) },
	"keys": func(n int) error {
		_, err := unix.AddKey("user", fmt.Sprintf("eater %d %d", os.Getpid(), n), make([]byte, 8<<10), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"timers":   func(int) error { return makeTimer() },
	"timerfds": func(int) error { _, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0); return err },
	"eventfds": func(int) error { _, err := unix.Eventfd(0, 0); return err },
	"epolls":   eatEpoll,
	"inotify":  eatWatch,
	"mqueue":   func(int) error { _, err := openQueues(""); return err },
	"sysv shm": func(int) error { _, err := unix.SysvShmGet(unix.IPC_PRIVATE, 64<<10, unix.IPC_CREAT|0o600); return err },
	"sysv msg": eatMessages,
	"sysv sem": func(int) error {
		return sysv(unix.SYS_SEMGET, 0, 32000, unix.IPC_CREAT|0o600) // IPC_PRIVATE
	},
	"ptys": func(int) error {
		_, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	},
	"vmas":        eatVMA,
	"page tables": eatPageTable,
	"inodes":      func(n int) error { return unix.Mkdir(scratch(n), 0o700) },
	"absent names": func(n int) error {
		if _, err := os.Stat(scratch(n)); !os.IsNotExist(err) {
			return err
		}
		return nil
	},
	"bpf": func(int) error {
		attr := [16]uint32{2, 4, 4 << 10, 64} // an array of 64 values of 4 KiB
		return sysv(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr[0])), unsafe.Sizeof(attr))
	},
	"tun": func(int) error {
		_, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	},
	"memfds": func(n int) error { _, err := unix.MemfdCreate("eater", 0); return err },
}

// eat has some processes eat pieces each, until each has as many as it was told or is
// stopped. It says how many they are and what stopped them, and keeps them until its
// input ends.
func eat(args []string) error {
	if len(args) != 3 || eaters[args[0]] == nil {
		return fmt.Errorf("no eater %q", args)
	}
	pieces, err1 := strconv.Atoi(args[1])
	processes, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("no numbers: %q", args)
	}
	if processes > 0 {
		return eatTogether(args[0], pieces, processes)
	}
	n, stopped := 0, error(nil)
	for n < pieces && stopped == nil {
		if stopped = eaters[args[0]](n); stopped == nil {
			n++
		}
	}
	fmt.Println(n, outcome(stopped))
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func eatTogether(name string, pieces, processes int) error {
	sum, stopped := 0, ok
	for range processes {
		cmd := exec.Command("/proc/self/exe", "eat", name, strconv.Itoa(pieces), "0")
		if _, err := cmd.StdinPipe(); err != nil { // its end is that of this process
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		n, what := 0, ""
		text, _ := bufio.NewReader(out).ReadString('\n')
		if _, err := fmt.Sscan(text, &n, &what); err != nil {
			what = "killed"
		}
		if sum += n; what != ok {
			stopped = what
		}
	}
	fmt.Println(sum, stopped)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// scratch is a path that nobody else uses.
func scratch(n int) string { return fmt.Sprintf("/tmp/eater-%d-%d", os.Getpid(), n) }

func sysv(nr uintptr, args ...uintptr) error {
	var a [3]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall(nr, a[0], a[1], a[2]); errno != 0 {
		return errno
	}
	return nil
}

// fill writes until nothing more fits.
func fill(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	for block := make([]byte, 32<<10); ; {
		if _, err := unix.Write(fd, block); err == unix.EAGAIN || err == unix.EMSGSIZE || err == unix.ENOBUFS {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func eatPipe(int) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	return fill(p[1])
}

func eatPair(kind int) error {
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return fill(p[0])
}

// eatRights leaves descriptors on their way, which count for nobody's limit but the
// user's.
func eatRights(int) error {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	var list [253]int
	for i := range list {
		if list[i], err = unix.Dup(p[1]); err != nil {
			break
		}
		defer unix.Close(list[i])
	}
	if err != nil {
		return err
	}
	return unix.Sendmsg(p[0], []byte{0}, unix.UnixRights(list[:]...), nil, 0)
}

func eatUDP(network, address string) error {
	l, err := net.ListenPacket(network, address)
	if err != nil {
		return err
	}
	kept = append(kept, l)
	for size, n := range map[int]int{60 << 10: 4, 1 << 10: 512} {
		block := make([]byte, size)
		for range n {
			if _, err := l.WriteTo(block, l.LocalAddr()); err != nil {
				return err
			}
		}
	}
	return nil
}

// kept is what must not be closed by the collector.
var kept []io.Closer

func eatTCP(int) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	from, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		return err
	}
	to, err := l.Accept()
	if err != nil {
		return err
	}
	kept = append(kept, from, to)
	for _, c := range []net.Conn{from, to} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var filled error
		if err := raw.Control(func(fd uintptr) { filled = fill(int(fd)) }); err != nil {
			return err
		}
		if filled != nil {
			return filled
		}
	}
	return nil
}

func eatFile(n int, lock func(fd int) error) error {
	fd, err := unix.Open(scratch(n), unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_ = unix.Unlink(scratch(n))
	return lock(fd)
}

func setLease(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	return err
}

func eatEpoll(int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, 1, &unix.EpollEvent{Events: unix.EPOLLHUP})
}

var watcher = -1

func eatWatch(n int) (err error) {
	if watcher < 0 {
		if watcher, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			return err
		}
	}
	if err := unix.Mkdir(scratch(n), 0o700); err != nil {
		return err
	}
	_, err = unix.InotifyAddWatch(watcher, scratch(n), unix.IN_CREATE)
	return err
}

func eatMessages(int) error {
	id, _, errno := unix.Syscall(unix.SYS_MSGGET, 0, unix.IPC_CREAT|0o600, 0) // IPC_PRIVATE
	if errno != 0 {
		return errno
	}
	message := make([]byte, 8+8<<10)
	message[0] = 1
	for {
		switch _, _, errno := unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&message[0])), 8<<10, unix.IPC_NOWAIT, 0, 0); errno {
		case 0:
		case unix.EAGAIN:
			return nil
		default:
			return errno
		}
	}
}

// eatVMA maps a page whose neighbours have other rights, so that none are merged.
func eatVMA(n int) error {
	_, err := unix.MmapPtr(-1, 0, nil, uintptr(os.Getpagesize()), []int{unix.PROT_READ, unix.PROT_NONE}[n%2], unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return err
}

// eatPageTable reads one page of two MiB: it is the page of zeros, the table is its own.
func eatPageTable(int) error {
	const span = 2 << 20
	p, err := unix.MmapPtr(-1, 0, nil, span, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	_ = unix.Madvise(unsafe.Slice((*byte)(p), span), unix.MADV_NOHUGEPAGE)
	if *(*byte)(p) != 0 {
		return unix.EINVAL
	}
	return nil
}
