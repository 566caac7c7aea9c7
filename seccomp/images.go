package seccomp

import "golang.org/x/sys/unix"

// Images returns the filter that caisson-images puts on itself before it reads what somebody
// sent: a Go program that has a connection to the daemon, and the files and sockets that come with
// it. Nothing in it opens a file, runs a program, or makes or connects a socket.
func Images() Profile {
	return Profile{Name: "images", Summary: "what parses images: Go's runtime, and the files that it was given", Rules: imagesRules}
}

// cThread are the flags that a C library adds to goThread.
const cThread = unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID

var imagesRules = append([]Rule{
	{
		Syscalls: fields(`read write pread64 pwrite64 lseek fstat ftruncate close`),
		Allow:    true,
		Why:      "the connection to the daemon, an archive, and what it is unpacked to",
	},
	{
		Syscalls: fields(`recvmsg`),
		Allow:    true,
		Why:      "files and sockets that the daemon passes. None can be sent",
	},
	{
		Syscalls: fields(`futex epoll_create1 epoll_ctl epoll_pwait eventfd2 sched_getaffinity`),
		Allow:    true,
		Why:      "Go's runtime: waiting, timers, and on how many CPUs it may be",
	},
	{
		Syscalls: fields(`clone`),
		Args:     []Arg{{Index: 0, Name: "flags but those of a C library", Mask: bits32 &^ cThread, Values: []Value{{goThread, "a thread of Go"}}}},
		Allow:    true,
		Why:      "threads, never a process",
	},
	{
		Syscalls: fields(`clone3`),
		Errno:    unix.ENOSYS,
		Why:      "its flags cannot be read here: a C library then uses clone",
	},
	{
		Syscalls: fields(`mprotect`),
		Args:     []Arg{{Index: 2, Name: "protection", Mask: unix.PROT_EXEC, Values: []Value{zero}}},
		Allow:    true,
		Why:      "a C library makes the stack of a thread so; never executable",
	},
	{
		Syscalls: fields(`set_robust_list rseq`),
		Allow:    true,
		Why:      "what a C library says of each of its threads",
	},
	{
		Syscalls: fields(`fcntl`),
		Args: []Arg{{Index: 1, Name: "command", Mask: bits32, Values: []Value{
			{unix.F_GETFL, "F_GETFL"}, {unix.F_SETFL, "F_SETFL"}, {unix.F_SETFD, "F_SETFD"},
		}}},
		Allow: true,
		Why:   "taking over what the daemon passed. Not F_SETOWN, which sends signals",
	},
}, goRules...)
