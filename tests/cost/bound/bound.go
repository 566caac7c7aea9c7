// Package bound holds what parses bytes from outside to what a request may cost.
package bound

import (
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// The most that an input of at most Size may cost. A larger one may cost more in proportion.
const (
	CPU    = 100 * time.Millisecond
	Memory = 64 << 20 // bytes
	Size   = 1 << 20
)

// tries are how often an input is tried: on a busy host the same work costs several times as
// much now and then.
const tries = 5

// Cost measures what f takes: the CPU of the process, with the collection of its garbage, and
// the bytes that it allocates, of which it never holds more.
func Cost(f func()) (cpu time.Duration, memory int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := used()
	f()
	cpu = used() - begun
	runtime.ReadMemStats(&after)
	return cpu, int(after.TotalAlloc - before.TotalAlloc)
}

// used is the CPU that the process has had.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // getrusage(2): of this process it always succeeds
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Check fails the test if parse, which reads an input of size bytes, costs more than a request
// may. The best of a few tries counts.
func Check(t testing.TB, size int, parse func()) {
	t.Helper()
	mostCPU, most := CPU, Memory
	if size > Size {
		mostCPU, most = CPU*time.Duration(size)/Size, Memory/Size*size
	}
	cpu, memory := least(mostCPU, most, parse)
	t.Logf("%s: %d bytes: %s of CPU, %d KiB", t.Name(), size, cpu, memory>>10)
	if cpu > mostCPU || memory > most {
		t.Errorf("%s of CPU and %d KiB, want at most %s and %d", cpu, memory>>10, mostCPU, most>>10)
	}
}

// least is the cost of f at its best, or the first that is within the bounds.
func least(mostCPU time.Duration, most int, f func()) (cpu time.Duration, memory int) {
	debug.FreeOSMemory() // what was before is not collected meanwhile
	cpu, memory = Cost(f)
	for range tries - 1 {
		if cpu <= mostCPU && memory <= most {
			break
		}
		c, m := Cost(f)
		cpu, memory = min(cpu, c), min(memory, m)
	}
	return cpu, memory
}
