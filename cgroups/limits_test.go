package cgroups

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/finding"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sane are the limits of the default profile.
var sane = Limits{PIDs: 256, MemoryBytes: 512 << 20, MilliCPU: 1000}

// least and most are the bounds of all limits.
var (
	least = bounds(func(row settings.Limit) int64 { return row.Min })
	most  = bounds(func(row settings.Limit) int64 { return row.Max })
)

func bounds(of func(settings.Limit) int64) (l Limits) {
	for _, row := range settings.Table {
		if row.Zero != settings.Unbounded {
			*row.Of((*settings.Limits)(&l)) = of(row)
		}
	}
	return l
}

// all sets each limit of a cgroup to n.
func all(n int64) Limits {
	return Limits{PIDs: n, MemoryBytes: n, MilliCPU: n, CPUShares: n, IOReadBPS: n, IOWriteBPS: n}
}

func TestValidate(t *testing.T) {
	for name, l := range map[string]Limits{
		"default": sane,
		"least":   least,
		"most":    most,
	} {
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tc := range map[string]struct {
		l    Limits
		want []string // all must be in the one error
	}{
		"nothing":   {Limits{}, []string{`"memory" is absent`, `"cpus" is absent`, `"pids" is absent`, "512M", "256"}},
		"negative":  {all(-1), []string{`"io read bps" is negative`, `"io write bps" is negative`, `"cpu shares" is negative`, `"memory" is negative`, `"cpus" is negative`, `"pids" is negative`}},
		"too small": {all(1), []string{"io read bps", "minimum of 65536", "cpu shares", "8388608", "minimum of 10", "minimum of 16", "PID 1"}},
		"too large": {all(math.MaxInt64), []string{"maximum of 1099511627776", "maximum of 262144", "maximum of 4194304", "maximum of 70368744177664", "maximum of 8192000"}},
		"one":       {Limits{PIDs: 256, MemoryBytes: least.MemoryBytes - 1, MilliCPU: 1000}, []string{"8388607", "8388608"}},
		"another":   {Limits{PIDs: most.PIDs + 1, MemoryBytes: 512 << 20, MilliCPU: 1000}, []string{"4194305"}},
	} {
		err := tc.l.Validate()
		if !errors.Is(err, sbxerr.Limits) {
			t.Errorf("%s: %v; want %s", name, err, sbxerr.Limits)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %s", name, err, want)
			}
		}
		h := newFakeHost(t).v1(usual...).detect()
		if r, err := tc.l.Resources(h); r != nil || sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%s: Resources = %v, %v; want a refusal", name, r, err)
		}
		if err := (&Group{host: h, path: "/caisson/one"}).Tighten(tc.l); sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%s: Tighten = %v; want a refusal", name, err)
		}
	}
}

// The goldens show what the OCI runtime gets, and what must be in force then.
func TestResourcesGolden(t *testing.T) {
	small := newFakeHost(t).v1("cpu", "memory", "devices", "pids").detect()
	small.NoSwap, small.SwapLimit = true, finding.No
	for name, h := range map[string]Host{
		"v1":        newFakeHost(t).v1(usual...).detect(),
		"v1-noswap": small,
		"hybrid":    newFakeHost(t).v1(usual...).hybrid().detect(),
		"v2":        newFakeHost(t).v2("cpu memory pids io hugetlb").detect(),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := sane.Resources(h)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(map[string]any{"resources": r, "files": sane.Files(h)}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".golden.json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(want)) != string(got) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Properties that no golden update may lose.
func TestResourcesInvariants(t *testing.T) {
	for _, h := range []Host{
		newFakeHost(t).v1(usual...).detect(),
		newFakeHost(t).v1(usual...).hybrid().detect(),
		newFakeHost(t).v2("cpu memory pids io hugetlb").detect(),
	} {
		for _, l := range []Limits{sane, least, most} {
			r, err := l.Resources(h)
			if err != nil {
				t.Fatal(err)
			}
			if *r.Memory.Limit != l.MemoryBytes || *r.Memory.Swap != l.MemoryBytes {
				t.Errorf("%s: memory %d, with swap %d; want both %d", h.Mode, *r.Memory.Limit, *r.Memory.Swap, l.MemoryBytes)
			}
			if *r.CPU.Quota*1000 != l.MilliCPU*int64(*r.CPU.Period) || *r.CPU.Quota < 1000 {
				t.Errorf("%s: quota %d of %d for %d", h.Mode, *r.CPU.Quota, *r.CPU.Period, l.MilliCPU)
			}
			if *r.Pids.Limit != l.PIDs {
				t.Errorf("%s: pids %d; want %d", h.Mode, *r.Pids.Limit, l.PIDs)
			}
			if first := r.Devices[0]; first.Allow || first.Type != "" || first.Major != nil || first.Access != "rwm" {
				t.Errorf("%s: the first device rule %+v does not deny all", h.Mode, first)
			}
			for _, d := range r.Devices[1:] {
				if d.Type != "c" || d.Major == nil || d.Minor == nil && *d.Major != 136 {
					t.Errorf("%s: device rule %+v is too wide", h.Mode, d)
				}
			}
			if (len(r.Unified) > 0) != (h.Mode == V2) || r.Memory.DisableOOMKiller != nil {
				t.Errorf("%s: unified %v; runc refuses it on v1", h.Mode, r.Unified)
			}
		}
	}
}
