package cgroups

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestOpenRefusesPathsThatCouldReachOthers(t *testing.T) {
	h := newFakeHost(t).v1(usual...).detect()
	for _, path := range []string{
		"", "/", "caisson/one", "/caisson", "/caisson/", "//one", "/caisson/one/", "/caisson/one/two", "/../one",
		"/caisson/..", "/caisson/.", "/./one", "/caisson/a b", "/caisson/a\x00", "/Caisson/one", "/caisson/-x",
		"/caisson/memory.max", "/caisson/" + strings.Repeat("a", 64),
	} {
		if g, err := Open(h, path); g != nil || sbxerr.Of(err) != sbxerr.Internal {
			t.Errorf("Open(%q) = %v, %v; want a refusal", path, g, err)
		}
	}
	for _, parent := range []string{"", "/", ".", "..", "a/b", "/caisson"} {
		if _, err := List(h, parent); err == nil {
			t.Errorf("List(%q) is no error", parent)
		}
		if err := RemoveParent(t.Context(), h, parent); err == nil {
			t.Errorf("RemoveParent(%q) is no error", parent)
		}
	}
	if _, err := Open(Host{}, "/caisson/one"); err == nil {
		t.Error("Open without a host is no error")
	}
	g, err := Open(h, "/caisson-0123abcd/abcdefghijklmnopqrstuvwx23")
	if err != nil || g.Path() != "/caisson-0123abcd/abcdefghijklmnopqrstuvwx23" {
		t.Errorf("Open = %v, %v", g, err)
	}
}

func TestStatsV1(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	g := f.group(f.detect(), map[string]string{
		"cpu.stat":                        "nr_periods 10\nnr_throttled 3\nthrottled_time 5000000\nnr_bursts 0\n",
		"cpuacct.usage":                   "1500000000\n",
		"cpuacct.usage_user":              "1000000000\n",
		"cpuacct.usage_sys":               "400000000\n",
		"memory.usage_in_bytes":           "4096\n",
		"memory.max_usage_in_bytes":       "8192\n",
		"memory.kmem.tcp.usage_in_bytes":  "0\n",
		"memory.oom_control":              "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		"pids.current":                    "5\n",
		"pids.max":                        "256\n",
		"pids.events":                     "max 4\n",
		"blkio.throttle.io_service_bytes": "8:0 Read 100\n8:0 Write 20\n8:0 Total 120\n8:16 Read 1\n8:16 Discard 5\nTotal 126\n",
	})
	s, err := g.Stats()
	want := Stats{
		CPUUse:  CPUUse{CPU: 1500 * time.Millisecond, Periods: 10, ThrottledPeriods: 3, Throttled: 5 * time.Millisecond},
		UserCPU: time.Second, SystemCPU: 400 * time.Millisecond,
		MemoryBytes: 4096, MemoryPeakBytes: known(8192), TCPBytes: known(0), PIDs: 5, PIDsMax: 256,
		IOReadBytes: known(101), IOWriteBytes: known(20),
	}
	if err != nil || s != want {
		t.Errorf("Stats = %+v, %v; want %+v", s, err, want)
	}
	e, err := g.Events()
	if wantE := (Events{OOMKills: 2, PIDsMaxHits: 4}); err != nil || e != wantE {
		t.Errorf("Events = %+v, %v; want %+v", e, err, wantE)
	}
}

func TestStatsV2(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids io")
	files := map[string]string{
		"cpu.stat":       "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 10\nnr_throttled 3\nthrottled_usec 5000\n",
		"memory.current": "4096\n",
		"memory.peak":    "8192\n",
		"memory.events":  "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n",
		"pids.current":   "5\n",
		"pids.max":       "max\n",
		"pids.events":    "max 4\n",
		"io.stat":        "8:0 rbytes=100 wbytes=20 rios=1 wios=1 dbytes=9 dios=0\n8:16 rbytes=1 wbytes=0\n",
	}
	g := f.group(f.detect(), files)
	s, err := g.Stats()
	want := Stats{
		CPUUse:  CPUUse{CPU: 1500 * time.Millisecond, Periods: 10, ThrottledPeriods: 3, Throttled: 5 * time.Millisecond},
		UserCPU: time.Second, SystemCPU: 500 * time.Millisecond,
		MemoryBytes: 4096, MemoryPeakBytes: known(8192), PIDs: 5, PIDsMax: math.MaxInt64,
		IOReadBytes: known(101), IOWriteBytes: known(20),
	}
	if err != nil || s != want {
		t.Errorf("Stats = %+v, %v; want %+v", s, err, want)
	}
	e, err := g.Events()
	if wantE := (Events{OOMKills: 2, OOMs: known(1), MemoryMaxHits: known(7), PIDsMaxHits: 4}); err != nil || e != wantE {
		t.Errorf("Events = %+v, %v; want %+v", e, err, wantE)
	}
	// Before kernel 5.19 there is no memory.peak, and without the io
	// controller no io.stat: not known, and not zero.
	for _, file := range []string{"memory.peak", "io.stat"} {
		if err := os.Remove(filepath.Join(g.unified(), file)); err != nil {
			t.Fatal(err)
		}
	}
	s, err = g.Stats()
	if err != nil || s.MemoryPeakBytes.Known || s.IOReadBytes.Known || s.MemoryPeakBytes.String() != "unknown" {
		t.Errorf("Stats = %+v, %v; want the peak and I/O unknown", s, err)
	}
}

func TestStatsOfBrokenFiles(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	g := f.group(f.detect(), map[string]string{
		"cpu.stat": "garbage\nnr_periods x\n\n", "cpuacct.usage": "1\n", "cpuacct.usage_user": "1\n", "cpuacct.usage_sys": "0\n",
		"memory.usage_in_bytes": "4096x\n", "pids.current": "", "pids.max": "max\n",
		"blkio.throttle.io_service_bytes": "8:0 Read many\n",
	})
	s, err := g.Stats()
	if sbxerr.Of(err) != sbxerr.Cgroup {
		t.Fatalf("Stats = %+v, %v; want an error", s, err)
	}
	for _, want := range []string{"4096x", "pids.current"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if s.IOReadBytes.Known {
		t.Errorf("I/O is known to be %s", s.IOReadBytes)
	}
}

func TestAbsentGroup(t *testing.T) {
	for _, h := range []Host{
		newFakeHost(t).v1(usual...).detect(),
		newFakeHost(t).v1(usual...).hybrid().detect(),
		newFakeHost(t).v2("cpu memory pids").detect(),
	} {
		g, err := Open(h, "/caisson/one")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Stats(); !errors.Is(err, fs.ErrNotExist) || sbxerr.Of(err) != sbxerr.Cgroup {
			t.Errorf("%s: Stats = %v; want fs.ErrNotExist", h.Mode, err)
		}
		if _, err := g.Events(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Events = %v; want fs.ErrNotExist", h.Mode, err)
		}
		if pids, err := g.Procs(); len(pids) != 0 || err != nil {
			t.Errorf("%s: Procs = %v, %v", h.Mode, pids, err)
		}
		if err := g.Kill(t.Context()); err != nil {
			t.Errorf("%s: Kill = %v", h.Mode, err)
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Errorf("%s: Remove = %v", h.Mode, err)
		}
		if err := RemoveParent(t.Context(), h, "caisson"); err != nil {
			t.Errorf("%s: RemoveParent = %v", h.Mode, err)
		}
		if ids, err := List(h, "caisson"); len(ids) != 0 || err != nil {
			t.Errorf("%s: List = %v, %v", h.Mode, ids, err)
		}
		if diffs := g.Verify(sane); len(diffs) < 6 {
			t.Errorf("%s: Verify = %v; want every limit missing", h.Mode, diffs)
		}
		if g.Exists() {
			t.Errorf("%s: it exists", h.Mode)
		}
	}
}

// A controller without a hierarchy must not be read from, or written to, the
// working directory.
func TestNoHierarchyIsNotTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("pids.max", []byte("256"), 0o644); err != nil {
		t.Fatal(err)
	}
	g := newFakeHost(t).v1("memory").group(newFakeHost(t).v1("memory").detect(), nil)
	if s, err := readString(g.dir("pids"), "pids.max"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read %q, %v", s, err)
	}
	if err := writeFile(g.dir("pids"), "pids.max", "max"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write = %v", err)
	}
}

// inForce are files that a runtime and Tighten would leave for sane.
func inForce(h Host) map[string]string {
	files := map[string]string{}
	for _, f := range sane.Files(h) {
		files[f.Name] = f.Value + "\n"
	}
	if h.Mode != V2 {
		files["devices.list"] = "c 136:* rwm\nc 5:2 rwm\nc 5:0 rwm\nc 1:9 rwm\nc 1:8 rwm\nc 1:7 rwm\nc 1:5 rwm\nc 1:3 rwm\n"
	}
	return files
}

func TestVerifyV1(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	h := f.detect()
	g := f.group(h, inForce(h))
	if diffs := g.Verify(sane); len(diffs) != 0 {
		t.Fatalf("Verify = %v; want nothing", diffs)
	}
	// Each file alone, in turn: changed, and gone.
	for name := range inForce(h) {
		changed := inForce(h)
		changed[name] = "1\n"
		if diffs := f.group(h, changed).Verify(sane); len(diffs) != 1 || diffs[0].File != name || diffs[0].Live != "1" {
			t.Errorf("with another %s: Verify = %v", name, diffs)
		}
		f.group(h, inForce(h))
		controller, _, _ := strings.Cut(name, ".")
		if err := os.Remove(filepath.Join(g.dir(controller), name)); err != nil {
			t.Fatal(err)
		}
		if diffs := g.Verify(sane); len(diffs) != 1 || !strings.Contains(diffs[0].String(), "unreadable") {
			t.Errorf("without %s: Verify = %v", name, diffs)
		}
		f.group(h, inForce(h))
	}
	// What runc adds to every allow-list.
	more := inForce(h)
	more["devices.list"] += "c *:* m\nb *:* m\n"
	if diffs := f.group(h, more).Verify(sane); len(diffs) != 1 || !strings.Contains(diffs[0].Live, "b *:* m") {
		t.Errorf("with mknod for all: Verify = %v", diffs)
	}
}

func TestVerifyV2(t *testing.T) {
	f := newFakeHost(t).v2("cpu memory pids hugetlb")
	h := f.detect()
	g := f.group(h, inForce(h))
	diffs := g.Verify(sane)
	// A directory of a plain file system can have no device program.
	if len(diffs) != 1 || diffs[0].File != deviceGuard {
		t.Errorf("Verify = %v; want only the device program missing", diffs)
	}
	changed := inForce(h)
	changed["memory.swap.max"] = "max\n"
	if diffs := f.group(h, changed).Verify(sane); len(diffs) != 2 || diffs[0].File != "memory.swap.max" {
		t.Errorf("with swap: Verify = %v", diffs)
	}
}

func TestTighten(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	g := f.group(f.detect(), map[string]string{"memory.kmem.tcp.limit_in_bytes": "", "devices.deny": ""})
	if err := g.Tighten(sane); err != nil {
		t.Fatal(err)
	}
	if got, err := readString(g.dir("memory"), "memory.kmem.tcp.limit_in_bytes"); got != "134217728" || err != nil {
		t.Errorf("the limit of TCP buffers is %q, %v; want a quarter of memory", got, err)
	}
	if got, err := readString(g.dir("devices"), "devices.deny"); got != runcAllows[len(runcAllows)-1] || err != nil {
		t.Errorf("the last denial is %q, %v", got, err)
	}
	// It writes only to files that the kernel made.
	if err := os.Remove(filepath.Join(g.dir("devices"), "devices.deny")); err != nil {
		t.Fatal(err)
	}
	if err := g.Tighten(sane); !errors.Is(err, fs.ErrNotExist) || sbxerr.Of(err) != sbxerr.Cgroup {
		t.Errorf("Tighten = %v; want fs.ErrNotExist", err)
	}
	v2 := newFakeHost(t).v2("cpu memory pids")
	if err := v2.group(v2.detect(), nil).Tighten(sane); err != nil {
		t.Errorf("on v2: %v", err)
	}
}

func FuzzReadFlat(f *testing.F) {
	f.Add("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
	f.Add("max")
	f.Add("a -1\nb 99999999999999999999\n c 3")
	f.Fuzz(func(t *testing.T, s string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x"), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := readFlat(dir, "x")
		if err != nil {
			t.Fatal(err)
		}
		for k, n := range m {
			if n < 0 {
				t.Errorf("%q is %d", k, n)
			}
		}
		if n, err := readInt(dir, "x"); err == nil && n < 0 {
			t.Errorf("readInt = %d", n)
		}
	})
}
