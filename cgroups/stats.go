package cgroups

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

const errNoDevice = unix.ENODEV

// CPUUse is the time of CPU that a group had so far, and did not get for its limit.
type CPUUse struct {
	CPU              time.Duration // of all CPUs; exact
	Periods          int64         // scheduler periods in which the group wanted to run
	ThrottledPeriods int64         // of these, how many ended with the quota used up
	Throttled        time.Duration // summed over CPUs
}

// Since returns what was used between b, which is earlier, and c.
func (c CPUUse) Since(b CPUUse) CPUUse {
	return CPUUse{c.CPU - b.CPU, c.Periods - b.Periods, c.ThrottledPeriods - b.ThrottledPeriods, c.Throttled - b.Throttled}
}

// Stats is the usage of a group so far.
type Stats struct {
	CPUUse
	// UserCPU and SystemCPU are sampled on v1 and need not add up to CPU.
	UserCPU   time.Duration
	SystemCPU time.Duration

	MemoryBytes     int64
	MemoryPeakBytes Reading // v2: kernel 5.19 and later
	TCPBytes        Reading // v1 only: v2 counts them in MemoryBytes

	PIDs    int64
	PIDsMax int64 // math.MaxInt64 is no limit

	// Bytes moved to and from block devices. On v1, writes that were buffered
	// first are charged to the root group and missing here.
	IOReadBytes  Reading
	IOWriteBytes Reading
}

// Events counts how often limits hit a group and the groups below it. Events of removed
// children may be missing.
type Events struct {
	OOMKills int64 // processes killed for lack of memory, the group's or the host's
	// OOMs counts how often the group itself ran out of memory: with it, a
	// kill is the sandbox's own doing and not the host's. v2 only.
	OOMs Reading
	// MemoryMaxHits counts allocations that met the memory limit, most of
	// which reclaim could serve. v2 only: v1 has memory.failcnt for it, which
	// was seen to stay 0 through an OOM kill on kernel 6.18.
	MemoryMaxHits Reading
	PIDsMaxHits   int64 // forks refused
}

// Stats reads the usage of the group. If the group is absent the error matches
// fs.ErrNotExist.
func (g *Group) Stats() (Stats, error) {
	read := g.statsV1
	if g.host.Mode == V2 {
		read = g.statsV2
	}
	s, err := read()
	return s, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.stats", err)
}

// Events reads the event counters of the group. If the group is absent the error matches
// fs.ErrNotExist.
func (g *Group) Events() (Events, error) {
	read := g.eventsV1
	if g.host.Mode == V2 {
		read = g.eventsV2
	}
	e, err := read()
	return e, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.events", err)
}

// OwnEvents is Events without those of children on v1, where a child counts its own. On v2
// a group's counts hold those of its children.
func (g *Group) OwnEvents() (Events, error) {
	if g.host.Mode == V2 {
		return g.Events()
	}
	r := reader{g: g}
	e := Events{
		OOMKills:    r.flat("memory", "memory.oom_control")["oom_kill"],
		PIDsMaxHits: r.flat("pids", "pids.events")["max"],
	}
	return e, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.own_events", r.err())
}

// SocketsPastLimit returns by how many bytes the buffers of the group's sockets pass
// their limit on v1: the kernel gives each socket a minimum, whatever the limit. On v2
// they count as memory, and it is 0.
func (g *Group) SocketsPastLimit() (int64, error) {
	if g.host.Mode == V2 {
		return 0, nil
	}
	r := reader{g: g}
	past := r.int("memory", "memory.kmem.tcp.usage_in_bytes") - r.int("memory", "memory.kmem.tcp.limit_in_bytes")
	return max(0, past), sbxerr.Wrap(sbxerr.Cgroup, "cgroups.sockets", r.err())
}

// reader reads several files of a group and keeps every error, so that the
// functions below read like the tables they are.
type reader struct {
	g    *Group
	errs []error
}

func (r *reader) err() error { return errors.Join(r.errs...) }

func (r *reader) int(controller, file string) int64 {
	n, err := readInt(r.g.dir(controller), file)
	r.errs = append(r.errs, err)
	return n
}

func (r *reader) flat(controller, file string) map[string]int64 {
	m, err := readFlat(r.g.dir(controller), file)
	r.errs = append(r.errs, err)
	return m
}

// total adds up one value of a flat keyed file over the group and all below it.
func (r *reader) total(controller, file, key string) int64 {
	n, err := totalBelow(r.g.dir(controller), file, key, maxDepth)
	r.errs = append(r.errs, err)
	return n
}

func totalBelow(dir, file, key string, depth int) (int64, error) {
	values, err := readFlat(dir, file)
	if err != nil {
		return 0, err
	}
	children, err := subdirs(dir)
	if err != nil || depth == 0 {
		return values[key], err
	}
	sum := values[key]
	for _, child := range children {
		n, err := totalBelow(filepath.Join(dir, child), file, key, depth-1)
		if err != nil && !gone(err) { // a command's group may go at any time
			return sum, err
		}
		sum += n
	}
	return sum, nil
}

// optional reads a number that the kernel may not offer. Any failure is the
// answer "unknown": such a number is shown to people and decides nothing.
func (r *reader) optional(controller, file string) Reading {
	n, err := readInt(r.g.dir(controller), file)
	if err != nil {
		return Reading{}
	}
	return known(n)
}

// CPUUse reads the use of CPU alone. If the group is absent the error matches
// fs.ErrNotExist.
func (g *Group) CPUUse() (CPUUse, error) {
	r := reader{g: g}
	use, _ := r.cpu()
	return use, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.cpu", r.err())
}

// cpu reads the use of CPU, and the file that most of it is in.
func (r *reader) cpu() (use CPUUse, stat map[string]int64) {
	stat = r.flat("cpu", "cpu.stat")
	use = CPUUse{Periods: stat["nr_periods"], ThrottledPeriods: stat["nr_throttled"]}
	if r.g.host.Mode == V2 {
		use.CPU = time.Duration(stat["usage_usec"]) * time.Microsecond
		use.Throttled = time.Duration(stat["throttled_usec"]) * time.Microsecond
		return use, stat
	}
	use.Throttled = time.Duration(stat["throttled_time"])
	if r.g.host.Controllers["cpuacct"] == finding.Yes {
		use.CPU = time.Duration(r.int("cpuacct", "cpuacct.usage"))
	}
	return use, stat
}

func (g *Group) statsV1() (Stats, error) {
	r := reader{g: g}
	use, _ := r.cpu()
	s := Stats{
		CPUUse:          use,
		MemoryBytes:     r.int("memory", "memory.usage_in_bytes"),
		MemoryPeakBytes: r.optional("memory", "memory.max_usage_in_bytes"),
		TCPBytes:        r.optional("memory", "memory.kmem.tcp.usage_in_bytes"),
		PIDs:            r.int("pids", "pids.current"),
		PIDsMax:         r.int("pids", "pids.max"),
	}
	if g.host.Controllers["cpuacct"] == finding.Yes {
		s.UserCPU = time.Duration(r.int("cpuacct", "cpuacct.usage_user"))
		s.SystemCPU = time.Duration(r.int("cpuacct", "cpuacct.usage_sys"))
	}
	s.IOReadBytes, s.IOWriteBytes = ioV1(g.dir("blkio"))
	return s, r.err()
}

func (g *Group) statsV2() (Stats, error) {
	r := reader{g: g}
	use, cpu := r.cpu()
	s := Stats{
		CPUUse:          use,
		UserCPU:         time.Duration(cpu["user_usec"]) * time.Microsecond,
		SystemCPU:       time.Duration(cpu["system_usec"]) * time.Microsecond,
		MemoryBytes:     r.int("memory", "memory.current"),
		MemoryPeakBytes: r.optional("memory", "memory.peak"),
		PIDs:            r.int("pids", "pids.current"),
		PIDsMax:         r.int("pids", "pids.max"),
	}
	s.IOReadBytes, s.IOWriteBytes = ioV2(g.dir("io"))
	return s, r.err()
}

// eventsV1 adds up the children's: v1 counts in the group of the process alone.
func (g *Group) eventsV1() (Events, error) {
	r := reader{g: g}
	e := Events{
		OOMKills:    r.total("memory", "memory.oom_control", "oom_kill"),
		PIDsMaxHits: r.total("pids", "pids.events", "max"),
	}
	return e, r.err()
}

func (g *Group) eventsV2() (Events, error) {
	r := reader{g: g}
	memory := r.flat("memory", "memory.events")
	e := Events{
		OOMKills:      memory["oom_kill"],
		OOMs:          known(memory["oom"]),
		MemoryMaxHits: known(memory["max"]),
		PIDsMaxHits:   r.pidsMaxHitsV2(),
	}
	return e, r.err()
}

// pidsMaxHitsV2: since kernel 6.11, which has the file of local events, a group's
// count holds its children's. Before, a refused fork counts in the group of the
// process, whosever limit it met.
func (r *reader) pidsMaxHitsV2() int64 {
	if _, err := readFlat(r.g.dir("pids"), "pids.events.local"); err == nil {
		return r.flat("pids", "pids.events")["max"]
	}
	return r.total("pids", "pids.events", "max")
}

// ioV1 sums "MAJ:MIN Read N" and "MAJ:MIN Write N" over all devices.
func ioV1(dir string) (read, write Reading) {
	s, err := readString(dir, "blkio.throttle.io_service_bytes")
	if err != nil {
		return Reading{}, Reading{}
	}
	read, write = known(0), known(0)
	for line := range strings.Lines(s) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue // "Total N"
		}
		n, err := parseInt(dir, "io", fields[2])
		switch {
		case err != nil:
			return Reading{}, Reading{}
		case fields[1] == "Read":
			read.N += n
		case fields[1] == "Write":
			write.N += n
		}
	}
	return read, write
}

// ioV2 sums "MAJ:MIN rbytes=N wbytes=N …" over all devices.
func ioV2(dir string) (read, write Reading) {
	s, err := readString(dir, "io.stat")
	if err != nil {
		return Reading{}, Reading{}
	}
	read, write = known(0), known(0)
	for _, field := range strings.Fields(s) {
		key, value, _ := strings.Cut(field, "=")
		if key != "rbytes" && key != "wbytes" {
			continue
		}
		n, err := parseInt(dir, "io.stat", value)
		switch {
		case err != nil:
			return Reading{}, Reading{}
		case key == "rbytes":
			read.N += n
		default:
			write.N += n
		}
	}
	return read, write
}
