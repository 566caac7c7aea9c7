// Package confine takes from the process that calls it all that caisson-gateway
// does not need, for good: files, users, capabilities, other processes, and
// most system calls. What is left is memory, the sockets that it holds, and
// connections that it makes.
//
// The process must have been started in a mount, pid, IPC and UTS namespace of
// its own, as root, by Go without cgo: only then can a Go program change the
// rights of all its threads.
package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/seccomp"
)

// User is whom the process runs as afterwards.
type User struct{ UID, GID uint32 }

// openFiles is how many descriptors are asked for; a connection needs two.
const openFiles = 1 << 20

// Confine does it. After an error the process has lost some rights and not
// others, and must end. The calling goroutine must hold the process's first
// thread, and keep it: the kernel forgets who is to be told of the parent's
// death with the thread that asked.
func Confine(u User) error {
	if err := check(u); err != nil {
		return err
	}
	// The Go runtime makes its epoll descriptor with the first timer, and ends the
	// process if it gets none.
	time.Sleep(time.Nanosecond)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"bound resources", limit},
		{"enter an empty root", emptyRoot},
		{"drop the bounding set", dropBounding},
		{"change the user", func() error { return become(u) }},
		{"drop capabilities", dropCapabilities},
		{"never gain rights", func() error { return everywhere(unix.PR_SET_NO_NEW_PRIVS, 1) }},
		{"be closed to others of the same user", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
		{"end with the parent", func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }},
		{"filter system calls", seccomp.Gateway().Enter},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// check refuses to take a host's root away from somebody's shell.
func check(u User) error {
	switch {
	case u.UID == 0 || u.GID == 0:
		return errors.New("the gateway never runs as root: name a user and a group above 0")
	case os.Getpid() != 1:
		return errors.New("this is not the first process of a pid namespace: caissond alone starts the gateway")
	}
	return nil
}

// limit forbids core dumps, which would hold what passes through, and allows as
// many descriptors as this process may have.
func limit() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: openFiles}) == nil {
		return nil
	}
	var l unix.Rlimit // more than the hard limit needs CAP_SYS_RESOURCE
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = l.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// emptyRoot makes the root of this mount namespace an empty directory in which
// nothing can be made, and unmounts all else.
func emptyRoot() error {
	unix.Umask(0o077)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	const place = "/proc" // a directory that every host has; nothing needs it any longer
	if err := unix.Mount("caisson-gateway", place, "tmpfs", flags, "size=4k,nr_inodes=1,mode=0555"); err != nil {
		return err
	}
	if err := unix.Chdir(place); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is now mounted over the new one
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, "")
}

// dropBounding leaves nothing that an executed program could have.
func dropBounding() error {
	for c := range uintptr(64) {
		err := everywhere(unix.PR_CAPBSET_DROP, c)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			return nil // the kernel has no more
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// become changes all ids. Those of all threads: package syscall sees to it.
func become(u User) error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(int(u.GID), int(u.GID), int(u.GID)); err != nil {
		return err
	}
	return syscall.Setresuid(int(u.UID), int(u.UID), int(u.UID))
}

// dropCapabilities empties all sets that are per thread; the ambient one goes
// with the inheritable one.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return asError(syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0))
}

// everywhere calls prctl(2) on all threads.
func everywhere(option int, arg uintptr) error {
	return asError(syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0))
}

// asError avoids an error that holds a zero errno and is not nil.
func asError(_, _ uintptr, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
