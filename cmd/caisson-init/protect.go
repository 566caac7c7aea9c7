package main

import (
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto"
)

const (
	closeRangeCloex = 4 // CLOSE_RANGE_CLOEXEC, <linux/close_range.h>, Linux 5.11
	sysCloseRange   = 436
	lastSignal      = initproto.MaxSignal
)

// protect makes this process unassailable for commands of the same user.
func protect() error {
	// Nobody of the same user may read its memory, its environment or its
	// descriptors in /proc, or trace it (ptrace(2), proc(5)).
	if err := prctl(syscall.PR_SET_DUMPABLE, 0); err != nil {
		return err
	}
	if err := sealFDs(); err != nil {
		return err
	}
	if err := defaultSignals(); err != nil {
		return err
	}
	return syscall.Chdir("/")
}

// sealFDs keeps whatever the OCI runtime left open out of the commands. All
// that is opened later is close-on-exec from the start.
func sealFDs() error {
	_, _, errno := syscall.RawSyscall(sysCloseRange, 3, ^uintptr(0)>>32, closeRangeCloex)
	return asError(errno)
}

// defaultSignals undoes the handlers of the Go runtime, which would end this
// process on a SIGTERM, SIGQUIT or SIGHUP of any command. To a PID 1 the kernel
// delivers no signal from inside whose action is the default (pid_namespaces(7)),
// and from outside only SIGKILL and SIGSTOP. Unlike ignored signals, defaults
// are also what the commands must inherit.
//
// SIGURG, with which the runtime preempts goroutines that compute for long, is
// not spared: its handler would block all signals while it runs, in the first
// thread too. A fault in this process still ends it, because the kernel forces
// those signals.
func defaultSignals() error {
	for sig := 1; sig <= lastSignal; sig++ {
		switch syscall.Signal(sig) {
		case syscall.SIGKILL, syscall.SIGSTOP:
			continue
		}
		if err := sigDefault(sig); err != nil {
			return err
		}
	}
	return nil
}

// sigDefault calls rt_sigaction(2). A zero action is SIG_DFL with no flags and
// an empty mask; 64 bytes are more than the structure has anywhere.
func sigDefault(sig int) error {
	var action [64]byte
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	return asError(errno)
}

func prctl(option int, arg uintptr) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0)
	return asError(errno)
}

// asError avoids an error that holds a zero errno and is not nil.
func asError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
