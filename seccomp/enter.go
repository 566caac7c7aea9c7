package seccomp

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Enter puts p on all threads of this process, for good. The thread that calls it must never be
// able to gain rights (PR_SET_NO_NEW_PRIVS, prctl(2)).
func (p Profile) Enter() error {
	filter, err := p.Assemble()
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, in := range filter {
		program[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	of := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&of)))
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d does not take the filter", thread)
	}
	return nil
}
