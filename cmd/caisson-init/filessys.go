package main

import (
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto/files"
)

// From <linux/fcntl.h> and <linux/fs.h>; package syscall lacks them.
const (
	atCwd             = -0x64
	atSymlinkNofollow = 0x100
	atSymlinkFollow   = 0x400
	atRemoveDir       = 0x200
	oPath             = 0x200000
	oTmpfile          = 0x400000 | syscall.O_DIRECTORY
	renameNoReplace   = 1
	permissions       = 0o777
)

// These calls are those of section 2 of the manual. openat2(2) would resolve
// beneath a directory by itself, but the default system call filter refuses it.

// pathCall makes a call that takes a path and one number.
func pathCall(number uintptr, dir int, path string, arg uintptr) error {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	for {
		_, _, errno := syscall.Syscall(number, uintptr(dir), uintptr(unsafe.Pointer(p)), arg)
		if errno != syscall.EINTR {
			return asErrno(errno)
		}
	}
}

// fillCall makes a call that fills in what is at to, and returns its result. It
// takes a pointer: as a number it would go wrong when the stack moves, which is
// where callers have what is filled in.
func fillCall(number uintptr, dir int, path string, to unsafe.Pointer, arg uintptr) (int, error) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	for {
		n, _, errno := syscall.Syscall6(number, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(to), arg, 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

func twoPathCall(number uintptr, dir int, path string, toDir int, to string, flags uintptr) error {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	q, err := syscall.BytePtrFromString(to)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(number, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(toDir), uintptr(unsafe.Pointer(q)), flags, 0)
	return asErrno(errno)
}

func openAt(dir int, path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := syscall.Openat(dir, path, flags|syscall.O_CLOEXEC, mode)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// openDir opens a directory to read it and to work below it. Without follow,
// a symlink is ENOTDIR.
func openDir(dir int, path string, follow bool) (int, error) {
	flags := syscall.O_RDONLY | syscall.O_DIRECTORY
	if !follow {
		flags |= syscall.O_NOFOLLOW
	}
	return openAt(dir, path, flags, 0)
}

func statAt(dir int, path string, flags int) (stat syscall.Stat_t, err error) {
	_, err = fillCall(sysFstatat, dir, path, unsafe.Pointer(&stat), uintptr(flags))
	return stat, err
}

func readLinkAt(dir int, path string) (string, error) {
	b := make([]byte, files.MaxPath+1)
	n, err := fillCall(syscall.SYS_READLINKAT, dir, path, unsafe.Pointer(&b[0]), uintptr(len(b)))
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

func unlinkAt(dir int, path string, flags int) error {
	return pathCall(syscall.SYS_UNLINKAT, dir, path, uintptr(flags))
}

func renameAt(dir int, path string, toDir int, to string, flags uintptr) error {
	return twoPathCall(sysRenameat2, dir, path, toDir, to, flags)
}

func linkAt(dir int, path string, toDir int, to string, flags uintptr) error {
	return twoPathCall(syscall.SYS_LINKAT, dir, path, toDir, to, flags)
}

func symlinkAt(target string, dir int, path string) error {
	p, err := syscall.BytePtrFromString(target)
	if err != nil {
		return err
	}
	q, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(syscall.SYS_SYMLINKAT, uintptr(unsafe.Pointer(p)), uintptr(dir), uintptr(unsafe.Pointer(q)))
	return asErrno(errno)
}

// setMtime sets the time of change of an open file, and leaves that of access.
func setMtime(fd int, seconds int64, nanos uint32) error {
	const omit = 1<<30 - 2 // UTIME_OMIT
	times := [2]syscall.Timespec{{Nsec: omit}, {Sec: seconds, Nsec: int64(nanos)}}
	_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	return asErrno(errno)
}

func asErrno(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// tempName returns a name that nothing has, unless somebody guesses it: callers
// make it exclusively and take another when it exists.
func tempName() string {
	var now syscall.Timeval
	_ = syscall.Gettimeofday(&now) // it cannot fail with a valid pointer
	tempCount++
	v := uint64(now.Sec)<<32 ^ uint64(now.Usec)<<12 ^ uint64(syscall.Getpid())<<40 ^ tempCount
	const digits = "0123456789abcdef"
	b := []byte(".caisson-0000000000000000")
	for i := len(b) - 1; i >= len(b)-16; i-- {
		b[i] = digits[v&15]
		v >>= 4
	}
	return string(b)
}

var tempCount uint64

// tempTries is how often a temporary name is tried.
const tempTries = 100

// withTempName calls f with new names until it does not return EEXIST.
func withTempName(f func(name string) error) (name string, err error) {
	for range tempTries {
		name = tempName()
		if err = f(name); err != syscall.EEXIST {
			return name, err
		}
	}
	return "", err
}
