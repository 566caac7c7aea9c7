package seccomp

import "golang.org/x/sys/unix"

// goThread are the flags of clone(2) with which Go makes a thread
// (runtime/os_linux.go); amd64 adds SETTLS.
const goThread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD

// goRules are what the runtime of a program in Go needs, but for waiting and threads.
var goRules = []Rule{
	{
		Syscalls: fields(`nanosleep sched_yield clock_gettime getrandom madvise munmap getpid gettid tgkill
			rt_sigprocmask rt_sigaction rt_sigreturn sigaltstack restart_syscall exit exit_group`),
		Allow: true,
		Why:   "Go's runtime: scheduling, memory, preemption by a signal to an own thread, and the end. In its pid namespace there is nobody else to signal",
	},
	{
		Syscalls: fields(`mmap`),
		Args: []Arg{
			{Index: 2, Name: "protection", Mask: unix.PROT_EXEC, Values: []Value{zero}},
			{Index: 3, Name: "flags & MAP_ANONYMOUS", Mask: unix.MAP_ANONYMOUS, Values: []Value{{unix.MAP_ANONYMOUS, "MAP_ANONYMOUS"}}},
		},
		Allow: true,
		Why:   "memory, never executable and never of a file",
	},
	{
		Syscalls: fields(`prctl`),
		Errno:    unix.EINVAL,
		Why:      "Go names its memory by PR_SET_VMA, and stops trying at this error",
	},
}
