package doctor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// seccompActionAvailable asks whether the kernel knows a filter's action
// (seccomp(2), SECCOMP_GET_ACTION_AVAIL, Linux 4.14).
func seccompActionAvailable(action *uint32) error {
	const getActionAvail = 2
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, getActionAvail, 0, uintptr(unsafe.Pointer(action)))
	if errno != 0 {
		return errno
	}
	return nil
}
