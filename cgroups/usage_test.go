package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const fakePressure = "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=1\n"

func TestUsageV1(t *testing.T) {
	f := newFakeHost(t).v1(usual...).hybrid()
	g := f.group(f.detect(), map[string]string{
		"cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 5000000\n", "cpuacct.usage": "1500000000\n", "memory.usage_in_bytes": "4096\n", "memory.max_usage_in_bytes": "8192\n", "pids.current": "5\n",
		"blkio.throttle.io_service_bytes": "8:0 Read 100\n8:0 Write 20\nTotal 120\n",
	})
	u, err := g.Usage()
	use := CPUUse{CPU: 1500 * time.Millisecond, Periods: 10, ThrottledPeriods: 3, Throttled: 5 * time.Millisecond}
	want := Usage{CPUUse: use, MemoryBytes: 4096, MemoryPeakBytes: known(8192), PIDs: 5, IOReadBytes: known(100)}
	if err != nil || u != want {
		t.Errorf("%+v, %v; want %+v", u, err, want)
	}
	for name, text := range map[string]string{"cpu.pressure": fakePressure, "memory.pressure": "some avg10=x\n"} {
		if err := os.WriteFile(filepath.Join(g.unified(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Stall(); s.CPU == nil || *s.CPU != 12.5 || s.Memory != nil || s.IO != nil {
		t.Errorf("%+v; want the CPU's alone", s)
	}
}

func TestUsageV2(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids io")
	g := f.group(f.detect(), map[string]string{
		"cpu.stat": "usage_usec 1500000\nuser_usec 1000000\nnr_periods 10\nnr_throttled 3\nthrottled_usec 5000\n", "memory.current": "4096\n", "memory.peak": "8192\n", "pids.current": "5\n",
		"io.stat": "8:0 rbytes=100 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=0\n", "memory.pressure": fakePressure,
	})
	u, err := g.Usage()
	use := CPUUse{CPU: 1500 * time.Millisecond, Periods: 10, ThrottledPeriods: 3, Throttled: 5 * time.Millisecond}
	want := Usage{CPUUse: use, MemoryBytes: 4096, MemoryPeakBytes: known(8192), PIDs: 5, IOReadBytes: known(101), IOWriteBytes: known(20)}
	if err != nil || u != want {
		t.Errorf("%+v, %v; want %+v", u, err, want)
	}
	if s := g.Stall(); s.CPU != nil || s.Memory == nil || *s.Memory != 12.5 {
		t.Errorf("%+v; want the memory's alone", s)
	}
	if err := os.WriteFile(filepath.Join(g.unified(), "memory.current"), []byte("4096x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if u, err := g.Usage(); sbxerr.Of(err) != sbxerr.Cgroup {
		t.Errorf("a broken file: %+v, %v", u, err)
	}
}

func TestLiveUsage(t *testing.T) {
	h := liveHost(t)
	g := liveGroup(t, h, Limits{PIDs: 64, MemoryBytes: 64 << 20, MilliCPU: 1000})
	u, err := g.Usage()
	counted := h.Mode != V2 // v2 has no io.stat where the host does not delegate the controller
	if h.Mode == V2 {
		_, statErr := os.Stat(filepath.Join(g.unified(), "io.stat"))
		counted = statErr == nil
	}
	if err != nil || u.PIDs != 0 || !u.MemoryPeakBytes.Known || u.IOReadBytes.Known != counted || u.IOWriteBytes.Known != (counted && h.Mode == V2) {
		t.Fatalf("%+v, %v", u, err)
	}
	if _, err := os.Stat("/proc/pressure"); err == nil && h.Unified != "" && g.Stall().CPU == nil {
		t.Error("the pressure is not known")
	}
	cmd := helperCommand(t, "eat")
	inGroup(t, g, cmd)
	_ = cmd.Wait() // killed
	if u, err = g.Usage(); err != nil || u.CPU == 0 || u.MemoryPeakBytes.N < 32<<20 {
		t.Errorf("after a process that ate memory: %+v, %v", u, err)
	}
	killAndRemove(t, g)
	if u, err = g.Usage(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed group: %+v, %v", u, err)
	}
}

// BenchmarkUsage reads 500 groups, as for each second of 500 sandboxes.
func BenchmarkUsage(b *testing.B) {
	h, err := Detect()
	if err != nil || os.Getuid() != 0 {
		b.Skip("it makes cgroups")
	}
	const parent = "caisson-bench"
	var groups []*Group
	b.Cleanup(func() {
		ctx := context.Background()
		for _, g := range groups {
			if err := g.Remove(ctx); err != nil {
				b.Error(err)
			}
		}
		if err := RemoveParent(ctx, h, parent); err != nil {
			b.Error(err)
		}
	})
	for i := range 500 {
		g, err := Open(h, fmt.Sprintf("/%s/g%d", parent, i))
		if err != nil {
			b.Fatal(err)
		}
		groups = append(groups, g)
		for _, dir := range g.dirs() {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("processes", func(b *testing.B) { // of one each, as there is at least
		for _, g := range groups {
			cmd := exec.CommandContext(b.Context(), "sleep", "1000")
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = cmd.Wait() }() // killed
			defer func() { _ = cmd.Process.Kill() }()
			if err := os.WriteFile(filepath.Join(g.dir("memory"), "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			for _, g := range groups {
				if n, err := g.Processes(); n != 1 || err != nil {
					b.Fatal(n, err)
				}
			}
		}
	})
	for name, stall := range map[string]bool{"usage": false, "usage and stall": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for _, g := range groups {
					if _, err := g.Usage(); err != nil {
						b.Fatal(err)
					}
					if stall && g.Stall() == (Stall{}) {
						b.Fatal("no pressure")
					}
				}
			}
		})
	}
}
