package seccomp

import "golang.org/x/sys/unix"

// newerRules refuse calls above futex_waitv, the highest number that is allowed and
// that every supported libseccomp knows. Without them they would give ENOSYS where
// libseccomp is old (their number is above all that the filter names) and EPERM where
// it is new. ENOSYS on all hosts lets programs fall back, and one golden table holds
// for all versions of the library.
var newerRules = []Rule{
	{
		Syscalls: fields(`set_mempolicy_home_node`),
		Errno:    unix.ENOSYS,
		Why:      "placement on NUMA nodes is the operator's",
	},
	{
		Syscalls: fields(`lsm_get_self_attr lsm_set_self_attr lsm_list_modules`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "a label is given from outside, and which modules guard the host is not the sandbox's to know",
	},
	{
		Syscalls: fields(`open_tree_attr`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "part of the mount API",
	},
	{
		Syscalls: fields(`file_getattr file_setattr`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "inode flags and project ids by a pointer; quota goes by project ids, and chattr has its ioctl",
	},
	{
		Syscalls: fields(`listns`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "lists namespaces",
	},
	{
		Syscalls: fields(`rseq_slice_yield`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "belongs to a prctl option that is not listed",
	},
}

// strictNewerRules are those of the same kind that compat allows.
var strictNewerRules = []Rule{
	{
		Syscalls: fields(`cachestat`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "tells what of a file is in the page cache, which sandboxes of one image share; fincore falls back to mincore, which is guarded",
	},
	{
		Syscalls: fields(`map_shadow_stack`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "belongs to ARCH_SHSTK_*, which is not listed",
	},
	{
		Syscalls: fields(`statmount listmount`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "mounts by ids that are unique on the host; /proc/self/mountinfo says what a program may know",
	},
}
