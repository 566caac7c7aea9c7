package cgroups

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
)

// The lowest limits of a command. Below these it cannot even be executed; it may need more
// to work. The process that executes it has threads before: of 240 starts on a busy host
// 56 failed with 2 tasks, 10 with 4, none with 5 to 7.
const (
	MinChildMemoryBytes = 1 << 20
	MinChildPIDs        = 8
)

// ChildLimits bounds one command inside of a sandbox. Nil leaves only the
// sandbox's own bound, which holds in any case; zero is an error.
type ChildLimits struct {
	MemoryBytes *int64 // swap is off with or without it
	MilliCPU    *int64 // 1000 is one CPU
	PIDs        *int64 // tasks, that is processes and threads
}

// childLimit is one limit that a command has.
type childLimit struct {
	settings.Limit
	value int64
}

// list returns the limits that l names, as the table of settings has them but for the lowest
// values.
func (l ChildLimits) list() (list []childLimit) {
	memory, cpus, pids := *settings.Row("memory_bytes"), *settings.Row("milli_cpu"), *settings.Row("pids")
	memory.Min, memory.Why, memory.Example = MinChildMemoryBytes, "bytes (1 MiB), below which nothing can be executed", "64M"
	pids.Min, pids.Why, pids.Example = MinChildPIDs, "tasks, because the threads that start the command count", "16"
	for _, f := range []struct {
		value *int64
		row   settings.Limit
	}{{l.MemoryBytes, memory}, {l.MilliCPU, cpus}, {l.PIDs, pids}} {
		if f.value != nil {
			list = append(list, childLimit{f.row, *f.value})
		}
	}
	return list
}

// Validate reports every reason why l is refused, with code sbxerr.Limits.
func (l ChildLimits) Validate() error {
	var errs []error
	for _, f := range l.list() {
		if err := f.Check(f.value); err != nil {
			errs = append(errs, fmt.Errorf("of a command: %w", err))
		}
	}
	return sbxerr.Wrap(sbxerr.Limits, "cgroups.validate", errors.Join(errs...))
}

// files lists the files to write for l, in this order: v1 refuses a limit of memory and
// swap together that is below the limit of memory.
func (l ChildLimits) files(h Host) []File {
	var files []File
	add := func(controller, name, value string) { files = append(files, File{controller, name, value}) }
	v2 := h.Mode == V2
	if v2 { // a command out of its own memory dies whole
		add("memory", "memory.oom.group", "1")
		add("memory", "memory.swap.max", "0")
	}
	if n := l.MemoryBytes; n != nil && v2 {
		add("memory", "memory.max", pages(*n))
	} else if n != nil {
		add("memory", "memory.limit_in_bytes", pages(*n))
		add("memory", "memory.memsw.limit_in_bytes", pages(*n))
	}
	if !v2 { // without one of its own the kernel charges sockets to nobody, not to the sandbox either
		most := int64(settings.MaxMemoryBytes)
		if l.MemoryBytes != nil {
			most = *l.MemoryBytes
		}
		add("memory", "memory.kmem.tcp.limit_in_bytes", pages(most/tcpShare))
	}
	if n := l.MilliCPU; n != nil && v2 {
		add("cpu", "cpu.max", fmt.Sprintf("%d %d", *n*(cpuPeriod/1000), cpuPeriod))
	} else if n != nil {
		add("cpu", "cpu.cfs_quota_us", strconv.FormatInt(*n*(cpuPeriod/1000), 10))
	}
	if n := l.PIDs; n != nil {
		add("pids", "pids.max", strconv.FormatInt(*n, 10))
	}
	files = h.dropSwap(files, "memory.swap.max")
	return h.dropSwap(files, "memory.memsw.limit_in_bytes")
}
