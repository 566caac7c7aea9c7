package main

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// relax loads a filter that allows everything, and then makes a call that the
// sandbox's own filter refuses: of all filters the strictest answer counts.
func relax() string {
	allowAll := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: 1, Filter: &allowAll[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "no_new_privs: " + outcome(err)
	}
	if got := raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); got != ok {
		return "filter not loaded: " + got
	}
	runtime.KeepAlive(allowAll)
	return raw(unix.SYS_MOUNT, badPointer, badPointer, badPointer, 0, 0)
}
