package main

import (
	"syscall"
	"unsafe"
)

// question is struct seccomp_notif (linux/seccomp.h): a call that waits for an answer.
type question struct {
	id    uint64
	pid   uint32 // of the thread, in this process's pid namespace
	flags uint32
	data  [64]byte
}

// reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

const (
	notifyReceive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	flagContinue  = 1          // SECCOMP_USER_NOTIF_FLAG_CONTINUE, Linux 5.5
)

// receive waits for a question.
func receive(fd int) (q question, err error) {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), notifyReceive, uintptr(unsafe.Pointer(&q)))
	return q, asError(errno)
}

// allowCall lets the call go on. For a call whose arguments lie in memory that would be a
// race: another thread could change them after the answer (seccomp_unotify(2)). Those of
// socket(2) are numbers, which the kernel keeps with the thread.
func allowCall(fd int, id uint64) error {
	return send(fd, reply{id: id, flags: flagContinue})
}

// denyCall ends the call with an error.
func denyCall(fd int, id uint64, errno syscall.Errno) error {
	return send(fd, reply{id: id, errno: -int32(errno)})
}

func send(fd int, r reply) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), notifySend, uintptr(unsafe.Pointer(&r)))
	return asError(errno)
}
