package escape

// machineExceptions are of the prober's attempts that are made on this architecture alone.
var machineExceptions = []exception{
	{call32, no32, func(a attempt) bool { return a.Outcome == lacking32 }},
}

// call32 is the attempt by the entry for calls of 32 bits, with how it ends under the
// declared filter and on a kernel without that entry.
const call32, killed32, lacking32 = "AArch32: getpid", "SIGSYS", "ENOEXEC"

var machineCompatOpens = map[string]string{}
