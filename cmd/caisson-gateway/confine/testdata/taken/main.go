// Command taken plays a gateway that somebody took over. It makes attempts that
// its first argument names, and prints what became of each: before it confines
// itself as the gateway does, or after.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/cmd/caisson-gateway/confine"
	"github.com/caisson-run/caisson/netns"
)

func init() { runtime.LockOSThread() }

// attempts are what the process must not be able to do. Each undoes what it did.
var attempts = map[string]func() error{
	"read a file of the host": func() error { _, err := os.ReadFile("/etc/passwd"); return err },
	"list the root": func() error {
		entries, err := os.ReadDir("/")
		if err == nil && len(entries) == 0 {
			err = os.ErrNotExist
		}
		return err
	},
	"write a file":        func() error { return remade("/taken") },
	"make a file in /tmp": func() error { return remade("/tmp/taken") },
	"run a program":       func() error { return exec.Command("/bin/true").Run() },
	"fork": func() error {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return errnoOf(errno)
	},
	"read a process's memory": func() error {
		var b [1]byte
		at := &b[0]
		_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: at, Len: 1}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(at)), Len: 1}}, 0)
		return err
	},
	"become root":              func() error { return unix.Setresuid(0, 0, 0) },
	"mount":                    func() error { return unix.Mount("x", "/", "tmpfs", 0, "") },
	"make a network namespace": func() error { return onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }) },
	"make a mount namespace":   func() error { return onThread(func() error { return unix.Unshare(unix.CLONE_NEWNS) }) },
	"listen":                   func() error { l, err := net.Listen("tcp4", "127.0.0.1:0"); return close(l, err) },
	"a unix socket":            func() error { return socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) },
	"a netlink socket":         func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) },
	"change a device by a netlink socket that was open":      func() error { return setUp(opened) },
	"change what is logged by a netlink socket of a sandbox": func() error { return unlog(int(dropLog.Fd())) },
	"a packet socket": func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"a raw socket":    func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"executable memory": func() error {
		p, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil {
			err = unix.Munmap(p)
		}
		return err
	},
	"signal a process": func() error { return unix.Kill(1, 0) },
	"change a limit":   func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) },
	"be dumpable":      func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"an io_uring": func() error {
		var params [120]byte
		fd, _, errno := syscall.RawSyscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		if errno == 0 {
			_ = unix.Close(int(fd))
		}
		return errnoOf(errno)
	},
	"a memfd": func() error {
		fd, err := unix.MemfdCreate("x", 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	},
	// What it must be able to do.
	"dial": func() error {
		c, err := net.DialTimeout("tcp4", os.Args[2], 5*time.Second)
		return close(c, err)
	},
}

// remade makes a file and removes it.
func remade(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Remove(path)
}

func close(c interface{ Close() error }, err error) error {
	if err != nil {
		return err
	}
	return c.Close()
}

func errnoOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// onThread runs fn on a thread that ends with it.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// opened is a netlink socket, as the gateway has one.
var opened int

// dropLog is one that was opened in a sandbox's namespace, as the gateway has it.
var dropLog *os.File

// openDropLog opens it in a namespace that is gone with it.
func openDropLog() error {
	return onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			dropLog, err = netns.OpenDropLog()
		}
		return err
	})
}

// setUp sets lo up, which it is: a question of rights (rtnetlink(7), RTM_NEWLINK).
func setUp(fd int) error {
	body := make([]byte, 4, unix.SizeofIfInfomsg)
	body = binary.NativeEndian.AppendUint32(body, 1) // lo
	body = binary.NativeEndian.AppendUint32(body, unix.IFF_UP)
	return ask(fd, unix.RTM_NEWLINK, binary.NativeEndian.AppendUint32(body, unix.IFF_UP))
}

// unlog ends the logging to group 1 (linux/netfilter/nfnetlink_log.h, NFULNL_CFG_CMD_UNBIND).
func unlog(fd int) error {
	body := []byte{unix.AF_UNSPEC, 0, 0, 1} // struct nfgenmsg
	body = binary.NativeEndian.AppendUint16(body, unix.SizeofRtAttr+1)
	body = binary.NativeEndian.AppendUint16(body, 1) // NFULA_CFG_CMD
	return ask(fd, unix.NFNL_SUBSYS_ULOG<<8|1, append(body, 2, 0, 0, 0))
}

// ask sends a request and returns what the kernel says of it.
func ask(fd int, kind uint16, body []byte) error {
	native := binary.NativeEndian
	b := native.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = native.AppendUint16(b, kind)
	b = native.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(append(b, make([]byte, 8)...), body...)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return errors.Join(err, unix.EBADMSG)
	}
	return errnoOf(syscall.Errno(-int32(native.Uint32(answer[unix.SizeofNlMsghdr:]))))
}

func main() {
	var err error
	if opened, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := openDropLog(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Args[1] == "confined" {
		if err := confine.Confine(confine.User{UID: 1879048191, GID: 1879048191}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	said := map[string]string{}
	for name, attempt := range attempts {
		said[name] = ""
		if err := onThread(attempt); err != nil { // threads that are made later are confined too
			said[name] = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		os.Exit(1)
	}
}
