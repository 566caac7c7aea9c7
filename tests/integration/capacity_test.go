package integration

import (
	"encoding/json"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

type resources struct {
	MilliCPU    int64 `json:"milli_cpu"`
	MemoryBytes int64 `json:"memory_bytes"`
	Sandboxes   int64 `json:"sandboxes"`
	DiskBytes   int64 `json:"disk_bytes"`
}

// TestCapacity: info tells what the host has, and a peer what its quota grants, and what the
// limits of live sandboxes leave.
func TestCapacity(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, peers+"sandboxes: {max: 8}\nwarm: 0\n")
	a := d.User(t, ann)
	read := func(text string) (all, left resources) {
		t.Helper()
		var out struct{ Capacity, Available resources }
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return out.Capacity, out.Available
	}
	all, before := read(d.Run(t, "info", "-o", "json").Stdout)
	if all.Sandboxes != 8 || before.Sandboxes != 8 || all.MilliCPU < 1000 || all.MemoryBytes < 1<<30 || before.DiskBytes <= 0 || before.DiskBytes >= all.DiskBytes {
		t.Errorf("an empty host has %+v, %+v left", all, before)
	}
	d.Run(t, "create", "--name", "own", "-m", "256M", "--cpus", "0.5")
	a.Run(t, "create", "--name", "hers", "-m", "64M", "--cpus", "0.25", "--pids", "50")
	d.Run(t, "run", "-d", "--name", "over", "--", "true")
	d.Run(t, "wait", "over")
	_, left := read(d.Run(t, "info", "-o", "json").Stdout)
	if left.Sandboxes != 6 || before.MemoryBytes-left.MemoryBytes != 320<<20 || before.MilliCPU-left.MilliCPU != 750 {
		t.Errorf("beside 256M and 64M, and one that has ended, %+v of %+v", left, before)
	}
	all, left = read(a.Run(t, "info", "-o", "json").Stdout)
	if all.Sandboxes != 2 || all.MemoryBytes != 640<<20 || left.Sandboxes != 1 || left.MemoryBytes != 576<<20 {
		t.Errorf("of a quota of 2 and 640M: %+v, %+v left", all, left)
	}
}
