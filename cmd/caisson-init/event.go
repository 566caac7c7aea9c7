package main

import (
	"syscall"
	"unsafe"
)

// newEvent makes an eventfd(2), close-on-exec.
func newEvent(set bool, flags uintptr) (int, error) {
	var count uintptr
	if set {
		count = 1
	}
	fd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, count, syscall.O_CLOEXEC|flags, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// signalEvent sets the event. It blocks only at 2^64 - 2.
func signalEvent(fd int) {
	one := uint64(1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// awaitEvent waits until the event is set and clears it.
func awaitEvent(fd int) error {
	var b [8]byte
	for {
		_, err := syscall.Read(fd, b[:])
		if err != syscall.EINTR {
			return err
		}
	}
}
