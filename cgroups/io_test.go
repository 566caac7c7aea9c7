package cgroups

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/tests/need"
)

// throttling makes f a host whose kernel throttles.
func throttling(f *fakeHost) *fakeHost {
	f.write("cgroup/blkio/"+readBPSFile, "")
	f.write("cgroup/init.scope/"+ioMaxFile, "")
	return f
}

func withIO(io Limits) Limits {
	l := sane
	l.IOReadBPS, l.IOWriteBPS, l.Disks = io.IOReadBPS, io.IOWriteBPS, io.Disks
	return l
}

func TestIOOfTheRuntime(t *testing.T) {
	v1, v2 := throttling(newFakeHost(t).v1(usual...)).detect(), throttling(newFakeHost(t).v2("cpu memory pids io")).detect()
	for name, tc := range map[string]struct {
		h         Host
		io        Limits
		want      string
		wantValue string
	}{
		"v1": {v1, Limits{IOReadBPS: 2 << 20, Disks: "254:0 8:16"},
			`{"throttleReadBpsDevice":[{"major":254,"minor":0,"rate":2097152},{"major":8,"minor":16,"rate":2097152}]}`,
			"254:0 2097152; 8:16 2097152"},
		"v2": {v2, Limits{IOReadBPS: 2 << 20, IOWriteBPS: 1 << 20, Disks: "254:0"},
			`{"throttleReadBpsDevice":[{"major":254,"minor":0,"rate":2097152}],"throttleWriteBpsDevice":[{"major":254,"minor":0,"rate":1048576}]}`,
			"254:0 rbps=2097152 wbps=1048576 riops=max wiops=max"},
		"writes": {v2, Limits{IOWriteBPS: 1 << 20, Disks: "254:0"},
			`{"throttleWriteBpsDevice":[{"major":254,"minor":0,"rate":1048576}]}`,
			"254:0 rbps=max wbps=1048576 riops=max wiops=max"},
		"none": {v1, Limits{Disks: "254:0"}, "null", ""},
	} {
		l := withIO(tc.io)
		r, err := l.Resources(tc.h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := json.Marshal(r.BlockIO); err != nil || string(got) != tc.want {
			t.Errorf("%s: block I/O %s, %v; want %s", name, got, err, tc.want)
		}
		value := ""
		for _, f := range l.Files(tc.h) {
			if f.ofIO() {
				value = f.Value
			}
		}
		if value != tc.wantValue {
			t.Errorf("%s: the kernel is to show %q; want %q", name, value, tc.wantValue)
		}
	}
	if _, err := withIO(Limits{IOReadBPS: 1 << 20}).Resources(v1); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("a rate without a disk: %v", err)
	}
}

func TestIOThatCannotBeBounded(t *testing.T) {
	read, write := Limits{IOReadBPS: 1 << 20, Disks: "254:0"}, Limits{IOWriteBPS: 1 << 20, Disks: "254:0"}
	shared := throttling(newFakeHost(t).v1("cpu,cpuacct,blkio:cpu,cpuacct,blkio", "memory", "devices", "pids"))
	shared.write("cgroup/cpu,cpuacct,blkio/"+readBPSFile, "")
	for name, tc := range map[string]struct {
		f    *fakeHost
		io   Limits
		want string // "" is enforced
	}{
		"v1":                   {throttling(newFakeHost(t).v1(usual...)), read, ""},
		"v2":                   {throttling(newFakeHost(t).v2("cpu memory pids io")), write, ""},
		"v2, no group to tell": {newFakeHost(t).v2("cpu memory pids io"), read, ""},
		"writes on v1":         {throttling(newFakeHost(t).v1(usual...)), write, "only direct writes"},
		"writes on hybrid":     {throttling(newFakeHost(t).v1(usual...).hybrid()), write, "only direct writes"},
		"no throttling":        {newFakeHost(t).v1(usual...), read, "cannot throttle"},
		"no blkio":             {newFakeHost(t).v1("cpu", "memory", "devices", "pids"), read, "missing"},
		"blkio with cpu":       {shared, read, "cannot throttle a sandbox as a whole"},
		"no io":                {throttling(newFakeHost(t).v2("cpu memory pids")), read, "missing"},
	} {
		h := tc.f.detect()
		_, err := withIO(tc.io).Resources(h)
		change := (&Group{host: h, path: "/caisson/one"}).Change(sane, withIO(tc.io))
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, err := range []error{err, change} {
			if sbxerr.Of(err) != sbxerr.CgroupController || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v; want %s with %q", name, err, sbxerr.CgroupController, tc.want)
			}
		}
		if r, err := sane.Resources(h); err != nil || r.BlockIO != nil {
			t.Errorf("%s: without a rate: %v", name, err)
		}
	}
}

// The kernel takes the rates of each disk, changes them, and takes them back.
func TestLiveIO(t *testing.T) {
	h := liveHost(t)
	if h.IOLimit == finding.No {
		need.Missing(t, "a kernel that throttles I/O in cgroups")
	}
	handDownIO(t, h, h.Unified)
	g := liveGroup(t, h, sane)
	handDownIO(t, h, filepath.Dir(g.UnifiedDir()))
	disks := blockDevices(t)
	steps := []Limits{withIO(Limits{IOReadBPS: 2 << 20, Disks: disks[0]}), withIO(Limits{IOReadBPS: 1 << 20, Disks: strings.Join(disks, " ")}), sane}
	if h.Mode == V2 {
		steps = append(steps, withIO(Limits{IOReadBPS: 1 << 20, IOWriteBPS: 3 << 20, Disks: disks[0]}), withIO(Limits{IOWriteBPS: 4 << 20, Disks: disks[0]}))
	}
	from := sane
	for _, to := range steps {
		if err := g.Change(from, to); err != nil {
			t.Fatal(err)
		}
		rates(t, g, from, to)
		from = to
	}
	for _, to := range steps {
		if err := g.Set(to); err != nil {
			t.Fatal(err)
		}
		rates(t, g, from, to)
		from = to
	}
	bounded := steps[1]
	if err := g.Change(from, bounded); err != nil {
		t.Fatal(err)
	}
	if err := g.FlushIO(); err != nil {
		t.Error(err)
	}
	rates(t, g, from, bounded)
	if err := g.LiftIO(); err != nil {
		t.Error(err)
	}
	rates(t, g, bounded, sane)
	from = sane
	absent, err := Open(h, "/"+testParent+"/absent")
	if err := errors.Join(err, absent.LiftIO(), absent.FlushIO()); err != nil {
		t.Errorf("a group that is not there: %v", err)
	}
	// A later write fails, and the earlier ones are undone.
	if err := g.Change(from, withIO(Limits{IOReadBPS: 1 << 20, Disks: disks[0] + " 4095:1"})); sbxerr.Of(err) != sbxerr.Cgroup {
		t.Errorf("a disk that is not there: %v", err)
	}
	rates(t, g, withIO(Limits{IOReadBPS: 1 << 20, Disks: disks[0]}), from)
}

// handDownIO gives groups below dir the controller on v2, as a runtime does.
func handDownIO(t *testing.T, h Host, dir string) {
	t.Helper()
	const file = "cgroup.subtree_control"
	if h.Mode != V2 {
		return
	}
	had, err := readString(dir, file)
	if err != nil || slices.Contains(strings.Fields(had), "io") {
		return
	}
	if err := writeFile(dir, file, "+io"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writeFile(dir, file, "-io"); err != nil {
			t.Error(err)
		}
	})
}

func rates(t *testing.T, g *Group, before, now Limits) {
	t.Helper()
	live, err := g.live(now.rateFile(g.host))
	if want := now.rateFile(g.host).Value; err != nil || live != want {
		t.Errorf("the kernel has %q, %v; want %q", live, err, want)
	}
	differs := slices.ContainsFunc(g.Verify(before), Mismatch.ofIO)
	if before.ratesIO() && before != now && !differs {
		t.Errorf("Verify of %+v finds no difference to %q", before, live)
	}
	if slices.ContainsFunc(g.Verify(now), Mismatch.ofIO) {
		t.Errorf("Verify of %+v finds a difference to %q", now, live)
	}
}

func (m Mismatch) ofIO() bool { return File{Name: m.File}.ofIO() }

// blockDevices are the host's, sorted as the kernel's file is compared.
func blockDevices(t *testing.T) (numbers []string) {
	t.Helper()
	found, err := filepath.Glob("/sys/block/*/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		number, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, strings.TrimSpace(string(number)))
	}
	if len(numbers) == 0 {
		need.Missing(t, "a block device")
	}
	slices.Sort(numbers)
	return numbers[max(0, len(numbers)-2):]
}
