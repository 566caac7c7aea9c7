package seccomp

import "golang.org/x/sys/unix"

// prctlRules list the options of prctl and arch_prctl that programs use. Both calls are
// collections of unrelated features, and new kernels add to them. An allow list keeps new
// options out.
var prctlRules = []Rule{
	{
		Syscalls: fields(`prctl`),
		Args: []Arg{{Index: 0, Name: "option", Mask: bits32, Values: []Value{
			{unix.PR_SET_PDEATHSIG, "SET_PDEATHSIG"},
			{unix.PR_GET_PDEATHSIG, "GET_PDEATHSIG"},
			{unix.PR_GET_DUMPABLE, "GET_DUMPABLE"},
			{unix.PR_SET_DUMPABLE, "SET_DUMPABLE"},
			{unix.PR_GET_KEEPCAPS, "GET_KEEPCAPS"},
			{unix.PR_SET_KEEPCAPS, "SET_KEEPCAPS"},
			{unix.PR_SET_NAME, "SET_NAME"},
			{unix.PR_GET_NAME, "GET_NAME"},
			{unix.PR_GET_SECCOMP, "GET_SECCOMP"},
			{unix.PR_CAPBSET_READ, "CAPBSET_READ"},
			{unix.PR_GET_SECUREBITS, "GET_SECUREBITS"},
			{unix.PR_SET_TIMERSLACK, "SET_TIMERSLACK"},
			{unix.PR_GET_TIMERSLACK, "GET_TIMERSLACK"},
			{unix.PR_SET_CHILD_SUBREAPER, "SET_CHILD_SUBREAPER"},
			{unix.PR_GET_CHILD_SUBREAPER, "GET_CHILD_SUBREAPER"},
			{unix.PR_SET_NO_NEW_PRIVS, "SET_NO_NEW_PRIVS"},
			{unix.PR_GET_NO_NEW_PRIVS, "GET_NO_NEW_PRIVS"},
			{unix.PR_GET_TID_ADDRESS, "GET_TID_ADDRESS"},
			{unix.PR_SET_THP_DISABLE, "SET_THP_DISABLE"},
			{unix.PR_GET_THP_DISABLE, "GET_THP_DISABLE"},
			{unix.PR_GET_SPECULATION_CTRL, "GET_SPECULATION_CTRL"},
			{unix.PR_SET_SPECULATION_CTRL, "SET_SPECULATION_CTRL"},
			{unix.PR_SET_MDWE, "SET_MDWE"},
			{unix.PR_GET_MDWE, "GET_MDWE"},
			{unix.PR_SET_PTRACER, "SET_PTRACER"},
			{unix.PR_SET_VMA, "SET_VMA"},
			{unix.PR_GET_AUXV, "GET_AUXV"},
		}}},
		Allow: true,
		Why: "names, parent death, dumpability, huge pages: what runtimes and libcap use." +
			" Not SET_MM, which rewrites what /proc shows of a process; not SET_SECUREBITS and CAPBSET_DROP, which need a capability;" +
			" not SET_MEMORY_MERGE, which opens pages to a side channel; not SYSCALL_USER_DISPATCH and SCHED_CORE",
	},
	{
		Syscalls: fields(`prctl`),
		Args: []Arg{
			{Index: 0, Name: "option", Mask: bits32, Values: []Value{{unix.PR_CAP_AMBIENT, "CAP_AMBIENT"}}},
			// The kernel compares the whole of this argument, but 32 bits of it are
			// enough: a value with others is an error there.
			{Index: 1, Name: "operation", Mask: bits32, Values: []Value{
				{unix.PR_CAP_AMBIENT_IS_SET, "IS_SET"},
				{unix.PR_CAP_AMBIENT_LOWER, "LOWER"},
				{unix.PR_CAP_AMBIENT_CLEAR_ALL, "CLEAR_ALL"},
			}},
		},
		Allow: true,
		Why:   "libcap asks for and drops ambient capabilities; raising one is refused",
	},
	{
		Syscalls: fields(`prctl`),
		Args: []Arg{{Index: 0, Name: "option", Mask: bits32, Values: []Value{
			{unix.PR_SVE_SET_VL, "SVE_SET_VL"},
			{unix.PR_SVE_GET_VL, "SVE_GET_VL"},
			{unix.PR_PAC_RESET_KEYS, "PAC_RESET_KEYS"},
			{unix.PR_SET_TAGGED_ADDR_CTRL, "SET_TAGGED_ADDR_CTRL"},
			{unix.PR_GET_TAGGED_ADDR_CTRL, "GET_TAGGED_ADDR_CTRL"},
			{unix.PR_SME_SET_VL, "SME_SET_VL"},
			{unix.PR_SME_GET_VL, "SME_GET_VL"},
		}}},
		Allow: true,
		Arch:  "arm64",
		Why:   "vector length, pointer authentication and memory tagging: numeric libraries and allocators",
	},
	{
		Syscalls: fields(`arch_prctl`),
		Args: []Arg{{Index: 0, Name: "code", Mask: bits32, Values: []Value{
			{0x1001, "ARCH_SET_GS"},
			{0x1002, "ARCH_SET_FS"},
			{0x1003, "ARCH_GET_FS"},
			{0x1004, "ARCH_GET_GS"},
			{0x1011, "ARCH_GET_CPUID"},
			{0x1021, "ARCH_GET_XCOMP_SUPP"},
			{0x1022, "ARCH_GET_XCOMP_PERM"},
			{0x1023, "ARCH_REQ_XCOMP_PERM"},
		}}},
		Allow: true,
		Arch:  "amd64",
		Why: "thread-local storage, which no program starts without, and the AMX registers of numeric libraries." +
			" Not ARCH_SHSTK_* (C libraries go on without a shadow stack), ARCH_MAP_VDSO_* or address tagging",
	},
}
