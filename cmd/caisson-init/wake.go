package main

import (
	"syscall"
	"unsafe"
)

// wake is the FIFO on which a daemon says that it is there; -1 where there is
// none, or none can be opened.
type wake int

// openWake opens the FIFO at path for one wait: it is hung up for good by the first
// writer that closes it.
func openWake(path string) wake {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
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
