package seccomp

// compatRules make compat of the common ones: an image that runs under the default
// filter of other container tools (the one of moby, for a container without
// capabilities) should run under it. What it does not take over, because no image
// needs it enough: tracing (the profile debug has it), sockets other than local, TCP
// and UDP, kernel TLS, namespaces, vmsplice, memfd_secret, fanotify,
// and the calls of x86 that the kernel itself no longer implements.
var compatRules = []Rule{
	{
		Syscalls: fields(`openat openat2 fchmod fchmodat mknodat`),
		Allow:    true,
		Why:      "files of any mode, set-id bits included, for installers that store them; the mounts are nosuid, but a file in a writable workspace keeps its bit on the host",
	},
	{
		Syscalls: fields(`fchmodat2`),
		Allow:    true,
		Optional: true,
		Why:      "as fchmodat, without following symbolic links (Linux 6.6)",
	},
	{
		Syscalls: fields(`open creat chmod mknod`),
		Allow:    true,
		Arch:     "amd64",
		Why:      "older forms of the same",
	},
	{
		Syscalls: fields(`prctl`),
		Allow:    true,
		Why:      "any option; what matters needs a capability that is not held",
	},
	{
		Syscalls: fields(`arch_prctl`),
		Allow:    true,
		Arch:     "amd64",
		Why:      "any code, shadow stacks and address tagging included",
	},
	{
		Syscalls: fields(`map_shadow_stack`),
		Allow:    true,
		Optional: true,
		Why:      "shadow stacks of user contexts (Linux 6.6)",
	},
	{
		Syscalls: fields(`modify_ldt`),
		Allow:    true,
		Arch:     "amd64",
		Why:      "segments for 16-bit programs under Wine",
	},
	{
		Syscalls: fields(`io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents`),
		Allow:    true,
		Why:      "native AIO of databases; takes from a counter that all of the host shares (fs.aio-max-nr)",
	},
	{
		Syscalls: fields(`name_to_handle_at`),
		Allow:    true,
		Why:      "asks for a file's handle; opening by handle stays refused",
	},
	{
		Syscalls: fields(`remap_file_pages`),
		Allow:    true,
		Why:      "old databases; the kernel emulates it by mmap since Linux 4.0",
	},
	{
		Syscalls: fields(`adjtimex clock_adjtime`),
		Allow:    true,
		Why:      "reading the state of the clock; changing it needs a capability that is not held",
	},
	{
		Syscalls: fields(`cachestat statmount listmount`),
		Allow:    true,
		Optional: true,
		Why:      "asking about the page cache and the own mounts",
	},
}
