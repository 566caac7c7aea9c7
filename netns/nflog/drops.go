package nflog

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The numbers that a socket keeps of its memory, SK_MEMINFO_ of linux/sock_diag.h.
const (
	memDrops = 8 // SK_MEMINFO_DROPS
	memVars  = 9 // SK_MEMINFO_VARS
)

// drops asks how many messages found no room in a socket (SO_MEMINFO, Linux 4.12).
func drops(fd int) (uint32, error) {
	var numbers [memVars]uint32
	size := uint32(unsafe.Sizeof(numbers))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&numbers[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt(SO_MEMINFO)", errno)
	}
	return numbers[memDrops], nil
}
