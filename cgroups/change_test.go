package cgroups

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// These have equally long numbers: a plain file, unlike the kernel's, keeps the end
// of a longer text.
var (
	less = Limits{PIDs: 128, MemoryBytes: 448 << 20, MilliCPU: 1000}
	some = Limits{PIDs: 256, MemoryBytes: 512 << 20, MilliCPU: 2000}
	more = Limits{PIDs: 512, MemoryBytes: 768 << 20, MilliCPU: 4000}
)

// tight does not hold what the processes of the tests use.
var tight = Limits{PIDs: 64, MemoryBytes: 64 << 20, MilliCPU: 500}

// inUse are the files of a group with some in force.
func inUse(h Host) map[string]string {
	files := map[string]string{}
	for _, f := range some.Files(h) {
		files[f.Name] = f.Value + "\n"
	}
	files["pids.current"], files["memory.current"], files["memory.usage_in_bytes"] = "3\n", "4096\n", "4096\n"
	return files
}

// matches compares the limits that can change.
func matches(t *testing.T, g *Group, want Limits) {
	t.Helper()
	for _, m := range g.Verify(want) {
		if m.File != deviceGuard && m.File != "devices.list" {
			t.Errorf("%s", m)
		}
	}
}

func TestChange(t *testing.T) {
	for _, f := range []*fakeHost{newFakeHost(t).v1(usual...), newFakeHost(t).v1(usual...).hybrid(), newFakeHost(t).v2("cpu memory pids hugetlb")} {
		h := f.detect()
		g := f.group(h, inUse(h))
		for _, step := range []struct{ from, to Limits }{{some, some}, {some, more}, {more, less}, {less, some}} {
			if err := g.Change(step.from, step.to); err != nil {
				t.Fatalf("%s: %v", h.Mode, err)
			}
			matches(t, g, step.to)
		}
		for range 2 {
			if err := g.Set(less); err != nil {
				t.Fatalf("%s: %v", h.Mode, err)
			}
			matches(t, g, less)
		}
		if err := g.Change(less, Limits{}); sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%s: Change to nothing = %v", h.Mode, err)
		}
		if err := g.Set(Limits{}); sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%s: Set to nothing = %v", h.Mode, err)
		}
		matches(t, g, less)
	}
}

// Change does not touch, nor need, what does not differ.
func TestChangeWritesOnlyWhatDiffers(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	h := f.detect()
	g := f.group(h, map[string]string{"pids.max": "256\n", "pids.current": "3\n"})
	to := some
	to.PIDs = 300
	if err := g.Change(some, to); err != nil {
		t.Fatal(err)
	}
	if got, err := readString(g.dir("pids"), "pids.max"); got != "300" || err != nil {
		t.Errorf("pids.max is %q, %v", got, err)
	}
}

func TestChangeOrder(t *testing.T) {
	f := newFakeHost(t).v1(usual...)
	g := f.group(f.detect(), inForce(f.detect()))
	for _, tt := range []struct {
		from, to Limits
		want     string
	}{
		{less, more, "memory.memsw.limit_in_bytes memory.limit_in_bytes"},
		{more, less, "memory.limit_in_bytes memory.memsw.limit_in_bytes"},
	} {
		old := map[string]string{}
		for _, file := range tt.from.Files(g.host) {
			old[file.Name] = file.Value
		}
		writes, err := g.writes(old, tt.to)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range writes {
			got = append(got, w.name)
		}
		if s := strings.Join(got, " "); !strings.HasPrefix(s, tt.want) || len(got) != 5 {
			t.Errorf("writes %s; want %s first", s, tt.want)
		}
	}
}

// Whichever write fails, what was written before it is taken back.
func TestChangeRollsBack(t *testing.T) {
	for _, f := range []*fakeHost{newFakeHost(t).v1(usual...), newFakeHost(t).v2("cpu memory pids")} {
		h := f.detect()
		for _, broken := range []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us", "cpu.max"} {
			for _, to := range []Limits{more, less} {
				files := inUse(h)
				if _, has := files[broken]; !has {
					continue
				}
				g := f.group(h, files)
				controller, _, _ := strings.Cut(broken, ".")
				path := filepath.Join(g.dir(controller), broken)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := g.Change(some, to); !errors.Is(err, fs.ErrNotExist) || sbxerr.Of(err) != sbxerr.Cgroup {
					t.Errorf("without %s: Change = %v", broken, err)
				}
				for _, m := range g.Verify(some) {
					if m.File != broken && m.File != deviceGuard {
						t.Errorf("without %s: %s", broken, m)
					}
				}
			}
		}
	}
}

func TestChangeRefusesWhatDoesNotFit(t *testing.T) {
	for _, f := range []*fakeHost{newFakeHost(t).v1(usual...), newFakeHost(t).v2("cpu memory pids")} {
		h := f.detect()
		files := inUse(h)
		files["pids.current"] = "129\n"
		g := f.group(h, files)
		if err := g.Change(some, less); sbxerr.Of(err) != sbxerr.State || !strings.Contains(err.Error(), "129") {
			t.Errorf("%s: Change with 129 tasks = %v; want %s", h.Mode, err, sbxerr.State)
		}
		matches(t, g, some)
		if h.Mode != V2 {
			continue // v1's kernel refuses memory itself; see TestLiveChangeMemory
		}
		files["pids.current"], files["memory.current"] = "3\n", strconv.Itoa(449<<20)
		if err := f.group(h, files).Change(some, less); sbxerr.Of(err) != sbxerr.State || !strings.Contains(err.Error(), "memory.max") {
			t.Errorf("Change with 449 MiB in use = %v; want %s", err, sbxerr.State)
		}
		matches(t, g, some)
	}
}

func TestLiveChange(t *testing.T) {
	g, _ := sandboxGroup(t, some)
	c, err := g.NewChild("e1", ChildLimits{MilliCPU: ptr(int64(1500))})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ from, to Limits }{{some, more}, {more, more}, {more, less}, {less, some}} {
		if err := g.Change(step.from, step.to); err != nil {
			t.Fatal(err)
		}
		matches(t, g, step.to)
	}
	if live, err := c.own.limit("cpu"); err != nil || g.host.Mode != V2 && live != less.MilliCPU || g.host.Mode == V2 && live != 1500 {
		t.Errorf("the command's quota is %d, %v", live, err)
	}
	for range 2 {
		if err := g.Set(less); err != nil {
			t.Fatal(err)
		}
		matches(t, g, less)
	}
	if err := g.Set(Limits{PIDs: 64, MemoryBytes: 64 << 20, MilliCPU: most.MilliCPU}); err != nil {
		t.Error(err) // quotas this long are the kernel's to take
	}
}

// Memory that is in use and cannot be reclaimed keeps the old limits, all of them,
// and its owner alive.
func TestLiveChangeMemory(t *testing.T) {
	g := liveGroup(t, liveHost(t), sane)
	cmd := helperCommand(t, "hold")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := inGroup(t, g, cmd)
	defer in.Close()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := g.Change(sane, tight); sbxerr.Of(err) != sbxerr.State {
		t.Errorf("Change below what is in use = %v; want %s", err, sbxerr.State)
	}
	matches(t, g, sane)
	if e, err := g.Events(); err != nil || e.OOMKills != 0 || stateOf(cmd.Process.Pid) == "Z" {
		t.Errorf("Events = %+v, %v; want nobody killed", e, err)
	}
	killAndRemove(t, g)
	_ = cmd.Wait() // killed
}

// Page cache is given up for a lower limit.
func TestLiveChangeReclaims(t *testing.T) {
	g := liveGroup(t, liveHost(t), sane)
	dir, err := os.MkdirTemp("/var/tmp", "caisson-cgroups-") // on a disk: what a tmpfs holds cannot be given up
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "cache")
	cmd := exec.Command("/bin/sh", "-c", "read _; dd if=/dev/zero of="+file+" bs=1M count=96 conv=fsync 2>/dev/null; echo done; read _")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := inGroup(t, g, cmd)
	defer in.Close()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if s, err := g.Stats(); err != nil || s.MemoryBytes < tight.MemoryBytes {
		t.Errorf("only %d bytes of cache are charged: %v; nothing to reclaim", s.MemoryBytes, err)
	}
	if err := g.Change(sane, tight); err != nil {
		t.Error(err)
	}
	matches(t, g, tight)
	killAndRemove(t, g)
	_ = cmd.Wait() // killed
}

// What the pool pays for a claim.
func BenchmarkChange(b *testing.B) {
	h, err := Detect()
	if err != nil || os.Geteuid() != 0 || h.Mode == V2 && !h.delegated() {
		b.Skip("needs root and cgroups")
	}
	g, err := Open(h, "/"+testParent+"/bench")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := makeParent(h, testParent); err != nil {
		b.Fatal(err)
	}
	h.HugePageSizes = nil
	g.host.HugePageSizes = nil
	defer func() {
		if err := errors.Join(g.Remove(b.Context()), RemoveParent(b.Context(), h, testParent)); err != nil {
			b.Error(err)
		}
	}()
	if err := g.tryLimits(sane); err != nil {
		b.Fatal(err)
	}
	limits := []Limits{sane, more}
	for i := 0; b.Loop(); i++ {
		if err := g.Change(limits[i%2], limits[(i+1)%2]); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPressure(t *testing.T) {
	m, err := Pressure()
	if err != nil || m.Total < 64<<20 || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("Pressure = %+v, %v", m, err)
	}
	files := map[string]string{
		"meminfo":         "MemTotal:       8000 kB\nMemFree: 1 kB\nMemAvailable:   2000 kB\nHugePages_Total:       0\n",
		"pressure/memory": "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=1\n",
	}
	want := HostMemory{Available: 2000 << 10, Total: 8000 << 10, Stalled: 12.5, StalledKnown: true}
	if got, err := pressureOf(tree(t, files)); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	without := maps.Clone(files)
	delete(without, "pressure/memory")
	want.Stalled, want.StalledKnown = 0, false
	if got, err := pressureOf(tree(t, without)); got != want || err != nil {
		t.Errorf("without PSI: %+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "MemTotal: 5 kB\n", "MemAvailable: 5 kB\n", "MemTotal: x kB\nMemAvailable: 5 kB\n", "MemTotal: 0 kB\nMemAvailable: 0 kB\n"} {
		if got, err := pressureOf(tree(t, map[string]string{"meminfo": text})); sbxerr.Of(err) != sbxerr.Internal {
			t.Errorf("%q: %+v, %v; want an error", text, got, err)
		}
	}
}

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
