// Package listener holds the second seccomp filter of a sandbox, which PID 1 puts in force
// for itself and so for every command. By it the kernel asks PID 1 before a command gets a
// netlink socket (seccomp_unotify(2)).
//
// The declared filter cannot do that: it decides by arguments and cannot count. The
// count matters because the kernel charges unread netlink answers to no cgroup.
//
// The package depends on nothing but syscall, as initproto does.
package listener

import (
	"encoding/binary"
	"syscall"
	"unsafe"
)

// Operation and flags of seccomp(2) (linux/seccomp.h).
const (
	setFilter = 1 // SECCOMP_SET_MODE_FILTER

	flagThreads      = 1 << 0 // SECCOMP_FILTER_FLAG_TSYNC
	flagListener     = 1 << 3 // SECCOMP_FILTER_FLAG_NEW_LISTENER
	flagThreadsError = 1 << 4 // SECCOMP_FILTER_FLAG_TSYNC_ESRCH, Linux 5.7
)

// Install puts Program in force for all threads of this process and for all that they
// start. It returns the descriptor that answers, close-on-exec. The declared filter lets a
// filter with exactly these flags through, and Program refuses another one.
//
// A signal interrupts a call that waits for an answer. The kernel repeats the call, unless
// the program asked to be told. The flag against that (WAIT_KILLABLE_RECV) is not set: a
// thread that cannot be interrupted cannot be frozen either, so a sandbox whose PID 1 was
// frozen first could not be paused.
func Install() (int, error) {
	// The kernel takes a filter only from a process that cannot gain rights. PID 1 is one
	// from its start.
	const noNewPrivs = 38 // PR_SET_NO_NEW_PRIVS
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, noNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return -1, errno
	}
	program := Program()
	p := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const flags = flagThreads | flagListener | flagThreadsError
	fd, _, errno := syscall.RawSyscall(sysSeccomp, setFilter, flags, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Instructions of classic BPF (linux/bpf_common.h).
const (
	load   = 0x20 // A = word k of the call
	equal  = 0x15
	meets  = 0x45
	result = 0x06
)

// Words of struct seccomp_data, by their offset. The kernel reads the arguments in
// question as 32 bits; their lower halves come first.
const (
	number = 0
	arch   = 4
	first  = 16
	second = 24
)

// Return values of a filter (linux/seccomp.h).
const (
	killThread = 0
	refuse     = 0x00050000
	notify     = 0x7fc00000
	allow      = 0x7fff0000
)

// Program returns the filter. It allows everything but two calls:
//
//   - socket(2) of the family AF_NETLINK asks the listener.
//   - seccomp(2) with a listener is EINVAL. Only PID 1 answers for others.
//
// The strictest filter decides, so a call that the declared one refuses never asks. It
// also kills the numbers of x32, which this one therefore need not know. Calls of another
// architecture have other numbers; both filters kill them.
func Program() []syscall.SockFilter {
	return []syscall.SockFilter{
		0:  {Code: load, K: arch},
		1:  {Code: equal, K: ownArch, Jt: 1},
		2:  {Code: result, K: killThread},
		3:  {Code: load, K: number},
		4:  {Code: equal, K: syscall.SYS_SOCKET, Jt: 2}, // to 7
		5:  {Code: equal, K: sysSeccomp, Jt: 4},         // to 10
		6:  {Code: result, K: allow},
		7:  {Code: load, K: first},
		8:  {Code: equal, K: syscall.AF_NETLINK, Jf: 6}, // else to 15
		9:  {Code: result, K: notify},
		10: {Code: load, K: first},
		11: {Code: equal, K: setFilter, Jf: 3}, // else to 15
		12: {Code: load, K: second},
		13: {Code: meets, K: flagListener, Jf: 1}, // else to 15
		14: {Code: result, K: refuse | uint32(syscall.EINVAL)},
		15: {Code: result, K: allow},
	}
}

// Bytes returns the filter as the kernel shows it.
func Bytes() []byte {
	var b []byte
	for _, i := range Program() {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	return b
}
