package cgroups

import (
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Bounds of Limits. PID 1 needs the lower bounds, measured with a static Go program that
// starts four commands. Below 8 MiB it is killed now and then. With fewer than 8 tasks the
// Go runtime aborts because it gets no thread; twice that leaves room on hosts with many
// CPUs. The upper bounds only catch mistakes of unit.
const (
	MinMemoryBytes = 8 << 20
	MaxMemoryBytes = 1 << 46 // 64 TiB, all that x86-64 can address
	MinMilliCPU    = 10      // the kernel's least quota is 1 ms of each 100 ms
	MaxMilliCPU    = 8192 * 1000
	MinPIDs        = 16
	MaxPIDs        = 1 << 22 // the kernel's PID_MAX_LIMIT

	// The kernel's bounds of cpu.shares, and its default.
	MinCPUShares     = 2
	MaxCPUShares     = 1 << 18
	DefaultCPUShares = 1024
)

// Limits bounds one sandbox. Every field but CPUShares and IO is required: zero is an error
// and never means unlimited.
type Limits struct {
	PIDs        int64 // tasks, that is processes and threads, PID 1 included
	MemoryBytes int64 // anonymous memory, page cache, tmpfs and kernel memory together
	MilliCPU    int64 // 1000 is one CPU
	// CPUShares is the weight against other groups while CPUs are short, in the measure of
	// cgroup v1. 0 is DefaultCPUShares.
	CPUShares int64
	IO        IO // optional
}

// bound is one check of Validate.
type bound struct {
	name            string
	value, min, max int64
	why             string // of the minimum
	example         string
}

func (l Limits) bounds() []bound {
	return []bound{
		{"memory", l.MemoryBytes, MinMemoryBytes, MaxMemoryBytes, "bytes (8 MiB), which PID 1 needs to live", "512M"},
		{"cpu", l.MilliCPU, MinMilliCPU, MaxMilliCPU, "thousandths of a CPU, the least that the kernel can grant", "1 or 0.5"},
		{"pids", l.PIDs, MinPIDs, MaxPIDs, "tasks, because the threads of PID 1 count", "256"},
	}
}

// Validate reports every reason why l is refused, with code sbxerr.Limits.
func (l Limits) Validate() error {
	var errs []error
	for _, b := range l.bounds() {
		errs = append(errs, b.check())
	}
	if l.CPUShares != 0 {
		errs = append(errs, bound{"cpu shares", l.CPUShares, MinCPUShares, MaxCPUShares, "shares", "1024"}.check())
	}
	for _, b := range l.IO.bounds() {
		errs = append(errs, b.check())
	}
	return sbxerr.Wrap(sbxerr.Limits, "cgroups.validate", errors.Join(errs...))
}

func (b bound) check() error {
	switch v := b.value; {
	case v == 0:
		return fmt.Errorf("limit %q is absent or zero, which never means unlimited: give for example %s", b.name, b.example)
	case v < 0:
		return fmt.Errorf("limit %q is negative (%d): give for example %s", b.name, v, b.example)
	case v < b.min:
		return fmt.Errorf("limit %q is %d, below the minimum of %d %s", b.name, v, b.min, b.why)
	case v > b.max:
		return fmt.Errorf("limit %q is %d, above the maximum of %d", b.name, v, b.max)
	}
	return nil
}
