package cgroups

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/finding"
)

const (
	// cpuPeriod is the kernel's default, in microseconds. Longer ones make
	// throttled programs stall visibly, shorter ones cost switches.
	cpuPeriod = 100_000

	// oomGroup lets the kernel kill one process of a sandbox that is out of memory, as v1
	// does. 1 would kill PID 1 too, and so the session, because of one command. PID 1
	// makes the kernel prefer commands.
	oomGroup = "0"

	// tcpShare is the part of the memory limit that TCP buffers may use on top
	// of it on v1, which counts them apart.
	tcpShare = 4
)

// device is one entry of the allow-list.
type device struct {
	major, minor int64 // minor -1 is any
	name         string
}

// devices may be opened; all others may not. runc adds some of its own, see
// runcAllows; Tighten takes them away where it can.
var devices = []device{
	{1, 3, "null"}, {1, 5, "zero"}, {1, 7, "full"}, {1, 8, "random"}, {1, 9, "urandom"},
	{5, 0, "tty"}, {5, 2, "ptmx"}, {136, -1, "pts/*"},
}

// Resources renders l for the OCI runtime of h. It is pure. It refuses values out of range
// (sbxerr.Limits) and limits that h cannot enforce (sbxerr.CgroupController).
//
// memory.high stays unset. Without swap there is little to reclaim, so between high and max
// the kernel only puts the sandbox to sleep (up to 2 s per return to user space). A command
// would then crawl until its timeout instead of being killed and reported in a second.
func (l Limits) Resources(h Host) (*specs.LinuxResources, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := h.Check(); err != nil {
		return nil, err
	}
	if err := h.CheckIO(l); err != nil {
		return nil, err
	}
	blockIO, err := l.blockIO()
	if err != nil {
		return nil, err
	}
	r := &specs.LinuxResources{
		BlockIO: blockIO,
		Devices: deviceRules(),
		Memory:  &specs.LinuxMemory{Limit: &l.MemoryBytes, Swap: &l.MemoryBytes},
		CPU:     &specs.LinuxCPU{Quota: ptr(l.quota()), Period: ptr(uint64(cpuPeriod))},
		Pids:    &specs.LinuxPids{Limit: &l.PIDs},
	}
	if h.NoSwap && h.SwapLimit != finding.Yes {
		r.Memory.Swap = nil
	}
	for _, size := range h.HugePageSizes {
		r.HugepageLimits = append(r.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: size, Limit: 0})
	}
	if h.Mode == V2 {
		// runc refuses a spec with unified keys on v1.
		r.Unified = map[string]string{
			"memory.oom.group": oomGroup,
			"cpu.weight":       strconv.FormatInt(l.weight(), 10),
		}
		return r, nil
	}
	r.CPU.Shares = ptr(uint64(l.shares()))
	r.Memory.Swappiness = ptr(uint64(0))
	return r, nil
}

func deviceRules() []specs.LinuxDeviceCgroup {
	rules := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	for _, d := range devices {
		rule := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr(d.major), Access: "rwm"}
		if d.minor >= 0 {
			rule.Minor = ptr(d.minor)
		}
		rules = append(rules, rule)
	}
	return rules
}

// quota is how many microseconds of each cpuPeriod the sandbox may run.
func (l Limits) quota() int64 { return l.MilliCPU * (cpuPeriod / 1000) }

// shares is the CPU weight in the measure of v1.
func (l Limits) shares() int64 { return cmp.Or(l.CPUShares, settings.DefaultCPUShares) }

// weight is that of v2: 1 for the least shares, 100 for the default and 10000 for the most,
// by the formula of runc 1.3. It is set directly, as older runtimes have another formula.
func (l Limits) weight() int64 {
	switch shares := l.shares(); {
	case shares <= settings.MinCPUShares:
		return 1
	case shares >= settings.MaxCPUShares:
		return 10000
	default:
		n := math.Log2(float64(shares))
		return int64(math.Ceil(math.Pow(10, (n*n+125*n)/612-7.0/34)))
	}
}

func ptr[T any](v T) *T { return &v }

// File is one limit as the kernel shows it.
type File struct {
	Controller string // whose hierarchy on v1
	Name       string
	Value      string
}

// Files lists the limit files of a sandbox with l on h, and their contents. Verify compares
// them and `caisson spec` prints them. The function is pure except for the page size, to
// which the kernel rounds memory limits.
func (l Limits) Files(h Host) []File {
	return slices.DeleteFunc(l.files(h), func(f File) bool { return f.Value == "" })
}

// files are Files and, without a value, those of limits that l does not set.
func (l Limits) files(h Host) []File {
	files := l.filesV1
	if h.Mode == V2 {
		files = l.filesV2
	}
	if h.IOLimit == finding.No {
		return files(h)
	}
	return append(files(h), l.rateFile(h))
}

func (l Limits) filesV1(h Host) []File {
	memory := pages(l.MemoryBytes)
	files := []File{
		{"memory", "memory.limit_in_bytes", memory},
		{"memory", "memory.memsw.limit_in_bytes", memory},
		{"memory", "memory.swappiness", "0"},
		{"memory", "memory.kmem.tcp.limit_in_bytes", pages(l.MemoryBytes / tcpShare)},
		{"pids", "pids.max", strconv.FormatInt(l.PIDs, 10)},
		{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(l.quota(), 10)},
		{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)},
		{"cpu", "cpu.shares", strconv.FormatInt(l.shares(), 10)},
		{"devices", "devices.list", deviceList()},
	}
	for _, size := range h.HugePageSizes {
		files = append(files, File{"hugetlb", "hugetlb." + size + ".limit_in_bytes", "0"})
	}
	return h.dropSwap(files, "memory.memsw.limit_in_bytes")
}

func (l Limits) filesV2(h Host) []File {
	files := []File{
		{"memory", "memory.max", pages(l.MemoryBytes)},
		{"memory", "memory.swap.max", "0"},
		{"memory", "memory.oom.group", oomGroup},
		{"pids", "pids.max", strconv.FormatInt(l.PIDs, 10)},
		{"cpu", "cpu.max", fmt.Sprintf("%d %d", l.quota(), cpuPeriod)},
		{"cpu", "cpu.weight", strconv.FormatInt(l.weight(), 10)},
	}
	for _, size := range h.HugePageSizes {
		files = append(files, File{"hugetlb", "hugetlb." + size + ".max", "0"})
	}
	return h.dropSwap(files, "memory.swap.max")
}

// dropSwap leaves name out on a kernel that has no swap, and so no such file.
func (h Host) dropSwap(files []File, name string) []File {
	if !h.NoSwap || h.SwapLimit == finding.Yes {
		return files
	}
	return slices.DeleteFunc(files, func(f File) bool { return f.Name == name })
}

// deviceList is devices as v1's devices.list shows them, sorted.
func deviceList() string {
	var lines []string
	for _, d := range devices {
		minor := "*"
		if d.minor >= 0 {
			minor = strconv.FormatInt(d.minor, 10)
		}
		lines = append(lines, fmt.Sprintf("c %d:%s rwm", d.major, minor))
	}
	return sortedLines(lines)
}

// pages cuts n to whole pages, as the kernel does with a limit.
func pages(n int64) string {
	size := int64(os.Getpagesize())
	return strconv.FormatInt(n/size*size, 10)
}
