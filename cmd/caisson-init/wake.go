package main

import (
	"strings"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto"
)

// wake is the FIFO on which a daemon says that it is there; -1 where there is
// none, or none can be opened.
type wake int

// openWake opens the FIFO beside the daemon's socket for one wait: it is hung up for
// good by the first writer that closes it.
func openWake(socket string) wake {
	dir := socket[:strings.LastIndexByte(socket, '/')+1]
	fd, err := syscall.Open(dir+initproto.WakeName, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return wake(fd)
}

func (w wake) close() {
	if w >= 0 {
		_ = syscall.Close(int(w))
	}
}

// wait returns when a daemon is there, after so many nanoseconds, or for no reason.
func (w wake) wait(nanos int64) {
	p := pollFD{fd: int32(w), events: pollIn} // poll(2) passes over a negative descriptor
	t := syscall.NsecToTimespec(nanos)
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}
