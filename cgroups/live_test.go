package cgroups

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// These tests make real groups on the host they run on, below a parent of
// their own, and put processes into them.

func TestLiveLimitsAreVerified(t *testing.T) {
	h := liveHost(t)
	g := liveGroup(t, h, sane)
	diffs := g.Verify(sane)
	if h.Mode == V2 {
		diffs = withoutDeviceGuard(diffs) // no runtime has attached one here
	}
	if len(diffs) != 0 {
		t.Errorf("Verify = %v; want nothing", diffs)
	}
	other := sane
	other.PIDs, other.MemoryBytes, other.MilliCPU = 257, 256<<20, 500
	for name := range map[string]bool{"pids.max": true, sane.Files(h)[0].Name: true} {
		found := false
		for _, d := range g.Verify(other) {
			found = found || d.File == name
		}
		if !found {
			t.Errorf("Verify of other limits does not report %s", name)
		}
	}
	if s, err := g.Stats(); err != nil || s.PIDs != 0 || s.PIDsMax != 256 || !s.MemoryPeakBytes.Known {
		t.Errorf("Stats of an empty group = %+v, %v", s, err)
	}
	if e, err := g.Events(); err != nil || e.OOMKills+e.PIDsMaxHits+e.MemoryMaxHits.N != 0 {
		t.Errorf("Events of an empty group = %+v, %v", e, err)
	}
}

func withoutDeviceGuard(diffs []Mismatch) []Mismatch {
	var rest []Mismatch
	for _, d := range diffs {
		if d.File != deviceGuard {
			rest = append(rest, d)
		}
	}
	return rest
}

func TestLiveMemoryLimit(t *testing.T) {
	h := liveHost(t)
	l := Limits{PIDs: 64, MemoryBytes: 64 << 20, MilliCPU: 1000}
	g := liveGroup(t, h, l)
	cmd := helperCommand(t, "eat")
	inGroup(t, g, cmd)
	err := cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Fatalf("the process ended with %v; want it killed", err)
	}
	e, err := g.Events()
	if err != nil || e.OOMKills < 1 || e.MemoryMaxHits.Known && e.MemoryMaxHits.N < 1 || e.OOMs.Known && e.OOMs.N < 1 {
		t.Errorf("Events = %+v, %v; want an OOM kill", e, err)
	}
	s, err := g.Stats()
	// The kernel lets a dying process take a few pages past the limit.
	const slack = 1 << 20
	if err != nil || s.MemoryPeakBytes.N < l.MemoryBytes/2 || s.MemoryPeakBytes.N > l.MemoryBytes+slack {
		t.Errorf("Stats = %+v, %v; want a peak near %d", s, err, l.MemoryBytes)
	}
	if s.CPU <= 0 {
		t.Errorf("Stats = %+v; want CPU time", s)
	}
}

func TestLivePIDsLimit(t *testing.T) {
	h := liveHost(t)
	g := liveGroup(t, h, Limits{PIDs: least.PIDs, MemoryBytes: 128 << 20, MilliCPU: 1000})
	forks := exec.Command("/bin/sh", "-c", "read _; i=0; while [ $i -lt 40 ]; do sleep 100 & i=$((i+1)); done; wait")
	stdin := inGroup(t, g, forks)
	defer stdin.Close()
	waitFor(t, "a fork to be refused", func() bool {
		e, err := g.Events()
		return err == nil && e.PIDsMaxHits > 0
	})
	s, err := g.Stats()
	if err != nil || s.PIDs > least.PIDs || s.PIDs < 2 {
		t.Errorf("Stats = %+v, %v; want up to %d tasks", s, err, least.PIDs)
	}
	killAndRemove(t, g)
	_ = forks.Wait() // killed
}

func TestLiveCPULimit(t *testing.T) {
	h := liveHost(t)
	l := Limits{PIDs: 64, MemoryBytes: 64 << 20, MilliCPU: 20} // 2 ms of each 100 ms
	g := liveGroup(t, h, l)
	cmd := helperCommand(t, "spin")
	start := time.Now()
	inGroup(t, g, cmd)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	s, err := g.Stats()
	if err != nil || s.ThrottledPeriods < 2 || s.Throttled <= 0 || s.CPU <= 0 {
		t.Errorf("Stats = %+v, %v; want throttling counted", s, err)
	}
	if took < 5*spinCPU {
		t.Errorf("%s of CPU took %s; want it stretched by the limit", spinCPU, took)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for wait := newPauses(); !done(); {
		if err := wait.next(ctx); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

func killAndRemove(t *testing.T, g *Group) {
	t.Helper()
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Procs(); len(pids) != 0 || err != nil {
		t.Errorf("after Kill: Procs = %v, %v", pids, err)
	}
	for range 2 {
		if err := g.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Stats(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove: Stats = %v; want fs.ErrNotExist", err)
	}
}

// Processes that fork all the time must not outrun Kill, with and without
// cgroup.kill, and not when the group is frozen.
func TestLiveKill(t *testing.T) {
	h := liveHost(t)
	withoutUnified := h
	withoutUnified.Mode, withoutUnified.Unified = V1, ""
	withoutFreezer := withoutUnified
	withoutFreezer.Controllers = map[string]finding.Answer{}
	type hostCase struct {
		host   Host
		freeze bool
	}
	cases := map[string]hostCase{"as it is": {h, false}, "frozen": {h, true}}
	if h.Mode == V1 { // v2 kills by cgroup.kill
		cases["signals"] = hostCase{withoutUnified, false}
		cases["signals, frozen"] = hostCase{withoutUnified, true}
		cases["no freezer"] = hostCase{withoutFreezer, false}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := liveGroup(t, h, Limits{PIDs: 64, MemoryBytes: 128 << 20, MilliCPU: 2000})
			forks := exec.Command("/bin/sh", "-c", "read _; f() { while :; do (sleep 0.01; f) & wait; done; }; f & f & f & wait")
			forks.Stderr = io.Discard
			stdin := inGroup(t, g, forks)
			defer stdin.Close()
			waitFor(t, "some processes", func() bool {
				pids, err := g.Procs()
				return err == nil && len(pids) > 8
			})
			killer := &Group{host: tc.host, path: g.path}
			if tc.freeze {
				if _, err := killer.freeze(); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			if err := killer.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("killed in %s", time.Since(start))
			_ = forks.Wait() // killed
			if pids, err := g.Procs(); len(pids) != 0 || err != nil {
				t.Errorf("after Kill: Procs = %v, %v", pids, err)
			}
		})
	}
}

func TestLiveRemoveOfABusyGroup(t *testing.T) {
	h := liveHost(t)
	g := liveGroup(t, h, sane)
	sleeper := exec.Command("/bin/sh", "-c", "read _; read _")
	stdin := inGroup(t, g, sleeper)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := g.Remove(ctx)
	pid := strconv.Itoa(sleeper.Process.Pid)
	if !errors.Is(err, unix.EBUSY) || !errors.Is(err, context.DeadlineExceeded) || sbxerr.Of(err) != sbxerr.Cgroup || !strings.Contains(err.Error(), pid) {
		t.Errorf("Remove = %v; want EBUSY that names %s", err, pid)
	}
	// It waits for a process that ends meanwhile.
	removed := make(chan error, 1)
	go func() { removed <- g.Remove(t.Context()) }()
	_ = stdin.Close()
	_ = sleeper.Wait()
	if err := <-removed; err != nil {
		t.Errorf("Remove while the process ends = %v", err)
	}
}

func TestLiveProbe(t *testing.T) {
	h := liveHost(t)
	for _, f := range Probe(t.Context(), testParent) {
		t.Logf("%s: %s (%s) %v", f.Name, f.Answer, f.Detail, f.Err)
		if (f.Answer == finding.Yes) != (f.Err == nil) {
			t.Errorf("%s answers %s with error %v", f.Name, f.Answer, f.Err)
		}
		if f.Needed && f.Answer != finding.Yes {
			t.Errorf("%s: %s, %v", f.Name, f.Answer, f.Err)
		}
	}
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, testParent)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Probe left %s/%s: %v", m, testParent, err)
		}
	}
	// A parent that was there stays.
	if _, err := makeParent(h, testParent); err != nil {
		t.Fatal(err)
	}
	Probe(t.Context(), testParent)
	for _, m := range h.mounts() {
		if _, err := os.Stat(filepath.Join(m, testParent)); err != nil {
			t.Errorf("Probe removed a parent that is not its own: %v", err)
		}
	}
	if err := RemoveParent(t.Context(), h, testParent); err != nil {
		t.Error(err)
	}
	if f := Probe(t.Context(), "no/such"); f[len(f)-1].Answer != finding.Unknown {
		t.Errorf("Probe of a bad parent: %+v", f[len(f)-1])
	}
}
