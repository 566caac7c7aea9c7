package nflog

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// drops asks how many messages found no room in a socket (SO_MEMINFO, Linux 4.12).
func drops(fd int) (uint32, error) {
	var numbers [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(numbers))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&numbers[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt(SO_MEMINFO)", errno)
	}
	return numbers[unix.SK_MEMINFO_DROPS], nil
}
