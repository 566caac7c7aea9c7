package cgroups

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// Mode is how a host arranges its cgroups.
type Mode string

// The modes. The zero Mode is none of them and is refused everywhere.
const (
	V1     Mode = "v1"     // each controller in a hierarchy of its own
	Hybrid Mode = "hybrid" // as v1, with an empty cgroup2 hierarchy beside it
	V2     Mode = "v2"     // one hierarchy with all controllers
)

// Host holds the cgroup features of a machine as plain data. The same Host gives the same
// Resources everywhere.
type Host struct {
	Mode Mode
	// Unified is the mount point of the cgroup2 hierarchy, empty on v1.
	Unified string
	// Hierarchies maps each v1 controller, and names such as "name=systemd",
	// to its mount point. Empty on v2.
	Hierarchies map[string]string
	// Controllers says which of the named controllers can be used. "devices"
	// on v2 stands for BPF device programs.
	Controllers map[string]finding.Answer
	// SwapLimit says whether swap can be bounded. On v2 the root group has no
	// file that tells; there Verify has the last word.
	SwapLimit finding.Answer
	// IOLimit says whether the traffic of a sandbox with disks can be bounded. On v2 it is
	// unknown while no group shows the file; there Verify has the last word.
	IOLimit finding.Answer
	// Tags says whether a command without limits can have a cgroup; see [Group.NewTag]. v1
	// needs a freezer whose hierarchy has no other controller.
	Tags finding.Answer
	// NoSwap is set when the kernel was built without swap: there is nothing
	// to bound, and no file to do it with.
	NoSwap bool
	// UnboundHugePages is set when the host has huge pages to give away and no
	// hugetlb controller to forbid them. mmap(2) with MAP_HUGETLB needs no
	// mount and no right, and the memory limit does not count such pages.
	UnboundHugePages bool
	// HugePageSizes lists the sizes whose use can be forbidden, named as in
	// the controller's files ("2MB"). Empty without a hugetlb controller.
	HugePageSizes []string
}

// controller is one that the package asks about.
type controller struct{ name, why string }

// required are the controllers without which a limit cannot be enforced.
var required = []controller{
	{"memory", "the memory limit"},
	{"cpu", "the CPU limit"},
	{"pids", "the limit of tasks"},
	{"devices", "keeping devices out"},
}

// wanted are the controllers that are used if present.
var wanted = []controller{
	{"cpuacct", "measuring CPU time"},
	{"blkio", "measuring and bounding I/O"},
	{"io", "measuring and bounding I/O"},
	{"freezer", "killing a group at one stroke without cgroup.kill"},
	{"hugetlb", "forbidding huge pages, which are not counted as memory"},
}

// Check returns nil if h can enforce all Limits. A controller that is missing or unknown
// is an error with code sbxerr.CgroupController.
func (h Host) Check() error {
	const op = "cgroups.check"
	if h.Mode != V1 && h.Mode != Hybrid && h.Mode != V2 {
		return sbxerr.New(sbxerr.CgroupController, op, "use cgroups of mode %q: the layout is not known", h.Mode)
	}
	for _, c := range required {
		if a := h.Controllers[c.name]; a != finding.Yes {
			return sbxerr.New(sbxerr.CgroupController, op, "find cgroup controller %q, needed for %s: %s", c.name, c.why, a)
		}
	}
	if h.UnboundHugePages {
		return sbxerr.WithRemedy(sbxerr.CgroupController, op,
			errors.New("find cgroup controller \"hugetlb\": the host has huge pages, which the memory limit does not count"),
			"enable the hugetlb controller, or set vm.nr_hugepages and vm.nr_overcommit_hugepages to 0")
	}
	swapUnbounded := h.SwapLimit == finding.No || h.SwapLimit == finding.Unknown && h.Mode != V2
	if swapUnbounded && !h.NoSwap {
		return sbxerr.WithRemedy(sbxerr.CgroupController, op,
			fmt.Errorf("find swap accounting, needed for the memory limit: %s", h.SwapLimit),
			"boot with swapaccount=1")
	}
	return nil
}

// mounts returns every distinct hierarchy once, in a fixed order.
func (h Host) mounts() []string {
	all := slices.Collect(maps.Values(h.Hierarchies))
	if h.Unified != "" {
		all = append(all, h.Unified)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mount returns the mount point of the hierarchy that holds controller, or "".
func (h Host) mount(controller string) string {
	if h.Mode == V2 {
		return h.Unified
	}
	return h.Hierarchies[controller]
}
