package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// relax loads a filter that allows everything, and then makes a call that the
// sandbox's own filter refuses: of all filters the strictest answer counts.
func relax() string {
	if got := loadFilter(1); got != ok {
		return "filter not loaded: " + got
	}
	return raw(unix.SYS_MOUNT, badPointer, badPointer, badPointer, 0, 0)
}

// ownFilter loads a filter of one's own, by the older call and the newer one.
func ownFilter(call uintptr) func() string {
	return func() string {
		if call == unix.SYS_SECCOMP {
			return loadFilter(1)
		}
		return outcome(unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0, 0, 0))
	}
}

// loadFilter loads a filter of n instructions that allows everything.
func loadFilter(n int) string {
	program := filterProgram(n)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "no_new_privs: " + outcome(err)
	}
	return raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(program)))
}

// filterProgram divides n-1 times, which compiles to much code, and allows.
func filterProgram(n int) *unix.SockFprog {
	filter := make([]unix.SockFilter, n)
	for i := range filter {
		filter[i] = unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_DIV | unix.BPF_K, K: 3}
	}
	filter[n-1] = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	return &unix.SockFprog{Len: uint16(n), Filter: &filter[0]}
}
