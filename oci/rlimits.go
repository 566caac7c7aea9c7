package oci

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// unlimited is RLIM_INFINITY of getrlimit(2).
const unlimited = ^uint64(0)

// RlimitValues are the resource limits that a request can move. Zero is
// refused by Build.
type RlimitValues struct {
	OpenFiles    uint64 // soft limit of descriptors per process
	OpenFilesMax uint64 // hard limit of descriptors per process
	// PIDs is the sandbox's process limit. The rlimit is set above it, see
	// the rule's reason.
	PIDs uint64
}

// rlimitRule is one resource limit with the reason for its value.
type rlimitRule struct {
	name       string
	soft, hard uint64 // of a rule without a from
	from       rlimitSource
	why        string
}

type rlimitSource int

const (
	fixed rlimitSource = iota
	fromOpenFiles
	fromPIDs
)

// pidsSlack keeps RLIMIT_NPROC above pids.max. fork(2) checks the rlimit first, and only
// the cgroup counts refusals.
const pidsSlack = 64

// MaxPIDs is the most that a sandbox with the resource limits have may be given
// as its limit of processes: past it RLIMIT_NPROC would fire first. A live process
// keeps the limit that it was made with.
func MaxPIDs(have []specs.POSIXRlimit) uint64 {
	i := slices.IndexFunc(have, func(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_NPROC" })
	if i < 0 || have[i].Hard < pidsSlack {
		return 0
	}
	return have[i].Hard - pidsSlack
}

// rlimitRules are all the resource limits of a sandbox; each is always set.
// RLIMIT_FSIZE is absent: it would bound a file of the workspace, not the disk,
// and every other writable place is a tmpfs of bounded size.
var rlimitRules = []rlimitRule{
	{name: "RLIMIT_CORE", soft: 1, hard: 1, why: "no core file fits into one byte, and 1 is the only value that also stops a piped dump (core(5)): 0 would still start the host's handler"},
	{name: "RLIMIT_MEMLOCK", soft: 64 << 10, hard: 64 << 10, why: "locked memory cannot be reclaimed"},
	{name: "RLIMIT_MSGQUEUE", soft: 0, hard: 0, why: "kernel memory for POSIX message queues; nothing here needs them"},
	{name: "RLIMIT_NICE", soft: 0, hard: 0, why: "no raising of priority above the host's own processes"},
	{name: "RLIMIT_NOFILE", from: fromOpenFiles, why: "descriptors per process; the soft limit keeps select(2) programs working"},
	{name: "RLIMIT_NPROC", from: fromPIDs, why: "second bound behind the cgroup's, counted per host id, which no other sandbox shares"},
	{name: "RLIMIT_RTPRIO", soft: 0, hard: 0, why: "no realtime scheduling"},
	{name: "RLIMIT_SIGPENDING", soft: 1024, hard: 1024, why: "kernel memory for queued signals and timers"},
	{name: "RLIMIT_STACK", soft: 8 << 20, hard: 64 << 20, why: "the usual default; deeper recursion may raise it, bounded by the memory limit"},
}

// Rlimits renders v and the fixed limits, ordered by name.
func Rlimits(v RlimitValues) []specs.POSIXRlimit {
	out := make([]specs.POSIXRlimit, 0, len(rlimitRules))
	for _, r := range rlimitRules {
		l := specs.POSIXRlimit{Type: r.name, Soft: r.soft, Hard: r.hard}
		switch r.from {
		case fromOpenFiles:
			l.Soft, l.Hard = v.OpenFiles, v.OpenFilesMax
		case fromPIDs:
			l.Soft, l.Hard = v.PIDs+pidsSlack, v.PIDs+pidsSlack
		}
		out = append(out, l)
	}
	return out
}

// ClampRlimits lowers want to the limits that a process with the limits have can set.
// Raising a hard limit needs CAP_SYS_RESOURCE, which the daemon may lack. Limits that have
// does not name stay as they are. Each lowered limit gives a warning for the result.
func ClampRlimits(want, have []specs.POSIXRlimit) (got []specs.POSIXRlimit, warnings []string) {
	for _, w := range want {
		i := slices.IndexFunc(have, func(h specs.POSIXRlimit) bool { return h.Type == w.Type })
		if i < 0 || w.Hard <= have[i].Hard {
			got = append(got, w)
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s is %d instead of %d: the daemon may not raise it past its own hard limit", w.Type, have[i].Hard, w.Hard))
		got = append(got, specs.POSIXRlimit{Type: w.Type, Soft: min(w.Soft, have[i].Hard), Hard: have[i].Hard})
	}
	return got, warnings
}
