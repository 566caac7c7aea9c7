package oci

import (
	"cmp"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// flagTSYNC is set by every runtime anyway. It is here because runc takes an empty list
// of flags as SECCOMP_FILTER_FLAG_SPEC_ALLOW, and JSON has no form for "empty but present".
const flagTSYNC specs.LinuxSeccompFlag = "SECCOMP_FILTER_FLAG_TSYNC"

// umask of PID 1: only its user can write files that it creates.
const umask uint32 = 0o022

// newNamespaces are those that the runtime makes. The user and the network
// namespace are joined by path; the time namespace stays the host's, which only
// tells the uptime.
var newNamespaces = []specs.LinuxNamespaceType{
	specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace,
}

// maskedPaths cannot be read. Those below /sys are for the day when somebody
// mounts it; a path that does not exist is skipped by the runtime.
var maskedPaths = []string{
	"/proc/acpi",
	"/proc/asound",
	"/proc/bus",
	"/proc/cmdline", // the host's boot parameters
	"/proc/config.gz",
	"/proc/diskstats", // I/O of the host and of other sandboxes
	"/proc/driver",
	"/proc/fs",
	"/proc/interrupts", // timing of keystrokes and of other sandboxes; containerd's own list lacks it
	"/proc/iomem",
	"/proc/ioports",
	"/proc/irq",
	"/proc/kallsyms",
	"/proc/kcore",
	"/proc/keys",
	"/proc/kmsg",
	"/proc/kpagecgroup",
	"/proc/kpagecount",
	"/proc/kpageflags",
	"/proc/latency_stats",
	"/proc/locks", // reading it takes the locks that all of the host's flock and fcntl calls need
	"/proc/modules",
	"/proc/pagetypeinfo",
	"/proc/partitions", // the host's disks
	"/proc/pressure",   // anybody may write a trigger there, which no cgroup is charged for
	"/proc/sched_debug",
	"/proc/scsi",
	"/proc/slabinfo",
	"/proc/sysrq-trigger",
	"/proc/timer_list",
	"/proc/timer_stats",
	"/proc/vmallocinfo",
	"/proc/vmstat", // counters of the host's memory, in steps fine enough to watch others
	"/proc/zoneinfo",
	"/sys/class/dmi",
	"/sys/devices/virtual/dmi",
	"/sys/devices/virtual/powercap", // power as a side channel (CVE-2020-8694)
	"/sys/firmware",
	"/sys/fs",
	"/sys/hypervisor",
	"/sys/kernel",
	"/sys/module",
	"/sys/power",
}

// readonlyPaths cannot be written. All but /proc/sys are masked as well: the
// mask lies on top, and what is below it stays read-only.
var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// assemble makes the specification of a checked Config. Nothing in the result
// is shared with c.
func assemble(c Config) *specs.Spec {
	oom := c.OOMScoreAdj
	mask := umask
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: cmp.Or(c.Hostname, c.ID),
		Process: &specs.Process{
			Args: slices.Clone(c.Process.Args),
			Env:  slices.Clone(c.Process.Env),
			Cwd:  c.Process.Cwd,
			User: specs.User{
				UID: c.Process.UID, GID: c.Process.GID, Umask: &mask,
				AdditionalGids: slices.Clone(c.Process.AdditionalGIDs),
			},
			Capabilities:    capabilities(c),
			Rlimits:         slices.Clone(c.Rlimits),
			NoNewPrivileges: true,
			OOMScoreAdj:     &oom,
		},
		Root:        &specs.Root{Path: c.RootPath, Readonly: !c.Allowed.WritableRoot},
		Mounts:      mounts(c),
		Annotations: maps.Clone(c.Annotations),
		Linux:       linux(c),
	}
}

// capabilities are present, and empty in all but a sandbox of root with Allowed.Setup: an
// absent object would leave the runtime's own. A program that root starts has those that
// are permitted and bounding; none are inherited by programs of other users.
func capabilities(c Config) *specs.LinuxCapabilities {
	out := &specs.LinuxCapabilities{
		Bounding: []string{}, Effective: []string{}, Inheritable: []string{}, Permitted: []string{}, Ambient: []string{},
	}
	if c.Allowed.Setup && c.Process.UID == 0 {
		out.Bounding, out.Effective, out.Permitted = slices.Clone(SetupCapabilities), slices.Clone(SetupCapabilities), slices.Clone(SetupCapabilities)
	}
	return out
}

func linux(c Config) *specs.Linux {
	ids := specs.LinuxIDMapping{ContainerID: 0, HostID: c.IDMap.HostBase, Size: c.IDMap.Size}
	return &specs.Linux{
		UIDMappings:       []specs.LinuxIDMapping{ids},
		GIDMappings:       []specs.LinuxIDMapping{ids},
		Namespaces:        namespaces(c),
		CgroupsPath:       c.CgroupsPath,
		Resources:         clone(c.Resources),
		Seccomp:           filter(c.Seccomp),
		RootfsPropagation: "rprivate",
		MaskedPaths:       slices.Clone(maskedPaths),
		ReadonlyPaths:     slices.Clone(readonlyPaths),
	}
}

func namespaces(c Config) []specs.LinuxNamespace {
	var out []specs.LinuxNamespace
	for _, t := range newNamespaces {
		out = append(out, specs.LinuxNamespace{Type: t})
	}
	return append(out,
		specs.LinuxNamespace{Type: specs.UserNamespace, Path: c.UserNSPath},
		specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: c.NetNSPath})
}

func filter(s *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	out := clone(s)
	if len(out.Flags) == 0 {
		out.Flags = []specs.LinuxSeccompFlag{flagTSYNC}
	}
	return out
}
