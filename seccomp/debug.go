package seccomp

import "golang.org/x/sys/unix"

// debugRules add tracing: gdb, lldb, delve, strace, py-spy. The targets are processes
// of the same sandbox and user, as the pid namespace holds no others. Since Linux 4.8
// a tracer cannot use a stopped call to get past the filter (the filter runs again
// after the tracer changed it).
var debugRules = []Rule{
	{
		Syscalls: fields(`ptrace`),
		Allow:    true,
		Why:      "tracing of the sandbox's own processes; races in its permission check are why no other profile has it (CVE-2026-46333)",
	},
	{
		Syscalls: fields(`process_vm_readv process_vm_writev`),
		Allow:    true,
		Why:      "reading and writing the memory of a process that may be traced",
	},
	{
		Syscalls: fields(`clone`),
		Args: []Arg{{Index: 0, Name: "flags & (CLONE_NEW*|CLONE_FILES|CLONE_THREAD)", Mask: namespaceFlags | unix.CLONE_FILES | unix.CLONE_THREAD,
			Values: []Value{{unix.CLONE_FILES, "CLONE_FILES"}}}},
		Allow: true,
		Why:   "a process that shares descriptors with the one it traces: LeakSanitizer",
	},
}
