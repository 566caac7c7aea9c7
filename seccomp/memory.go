package seccomp

import "golang.org/x/sys/unix"

// memoryRules: the address space. The sandbox's memory limit bounds all of it.
var memoryRules = []Rule{
	{
		Syscalls: fields(`brk mmap munmap mremap mprotect msync mincore`),
		Allow:    true,
		Why:      "allocation and mapping of files; mprotect to executable is what every JIT needs",
	},
	{
		Syscalls: fields(`madvise`),
		Args: []Arg{{Index: 2, Name: "advice", Mask: bits32, Not: true, Under: 128,
			Values: []Value{{unix.MADV_MERGEABLE, "MADV_MERGEABLE"}}}},
		Allow: true,
		Why: "allocators, Go, the JVM. Not MADV_MERGEABLE: pages that the kernel merges with those of another sandbox or virtual machine" +
			" tell by their timing what the other holds",
	},
	{
		Syscalls: fields(`mlock mlock2 mlockall munlock munlockall`),
		Allow:    true,
		Why:      "keeping keys out of swap; RLIMIT_MEMLOCK bounds it",
	},
	{
		Syscalls: fields(`pkey_alloc pkey_free pkey_mprotect`),
		Allow:    true,
		Why:      "protection keys: V8 and other JITs guard their code with them",
	},
	{
		Syscalls: fields(`memfd_create`),
		Allow:    true,
		Why:      "anonymous files for shared memory, and our own init's start requests; charged to the sandbox's memory",
	},
	{
		Syscalls: fields(`mseal`),
		Allow:    true,
		Optional: true,
		Why:      "sealing of own mappings (Linux 6.10): glibc 2.42 and browsers harden themselves with it",
	},
}
