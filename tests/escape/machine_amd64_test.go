package escape

// machineExceptions are of the prober's attempts that are made on this architecture alone.
var machineExceptions = []exception{
	{call32, no32, lacks32}, {"int 0x80: socketcall", no32, lacks32}, {"int 0x80: socket(AF_VSOCK)", no32, lacks32},
}

// lacks32: the kernel is without ia32_emulation, and the program faults.
func lacks32(a attempt) bool { return a.Outcome == "exit status 2" }

// call32 is an attempt by the entry for calls of 32 bits, with how it ends under the
// declared filter and on a kernel without that entry: there the prober faults and says nothing.
const call32, killed32, lacking32 = "int 0x80: getpid", "thread killed", ""

var machineCompatOpens = map[string]string{
	"modify_ldt":                    "Wine",
	"arch_prctl(ARCH_SHSTK_ENABLE)": "shadow stacks",
}
