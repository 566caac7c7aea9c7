package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestChildNames(t *testing.T) {
	g := newFakeHost(t).v1(usual...).hybrid()
	group := g.group(g.detect(), nil)
	for _, name := range []string{"", ".", "..", "a/b", "/a", "A", "-a", "a\x00", InitChild, "memory.max", strings.Repeat("a", 64)} {
		if c, err := group.Child(name); c != nil || sbxerr.Of(err) != sbxerr.Internal {
			t.Errorf("Child(%q) = %v, %v; want a refusal", name, c, err)
		}
	}
	c, err := group.Child("e-1")
	if err != nil || c.Path() != "/caisson/one/e-1" || c.Name() != "e-1" {
		t.Errorf("Child = %v, %v", c, err)
	}
}

func TestChildLimitsValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits ChildLimits
		want   []string // parts of the refusal; none: allowed
	}{
		{"none", ChildLimits{}, nil},
		{"all", ChildLimits{ptr(int64(1 << 20)), ptr(int64(10)), ptr(int64(8))}, nil},
		{"zero", ChildLimits{ptr(int64(0)), ptr(int64(0)), ptr(int64(0))}, []string{`"memory" is absent or zero`, `"cpus" is absent or zero`, `"pids" is absent or zero`}},
		{"negative", ChildLimits{PIDs: ptr(int64(-1))}, []string{"negative"}},
		{"little", ChildLimits{MemoryBytes: ptr(int64(4096)), MilliCPU: ptr(int64(9)), PIDs: ptr(int64(7))}, []string{"below the minimum of 1048576", "below the minimum of 10", "below the minimum of 8"}},
		{"much", ChildLimits{MemoryBytes: ptr(int64(1 << 50))}, []string{"above the maximum"}},
	} {
		err := tt.limits.Validate()
		if len(tt.want) == 0 && err != nil || len(tt.want) > 0 && sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v; want %q", tt.name, err, part)
			}
		}
	}
}

func TestChildFiles(t *testing.T) {
	all := ChildLimits{ptr(int64(64 << 20)), ptr(int64(500)), ptr(int64(9))}
	v1, v2 := newFakeHost(t).v1(usual...).detect(), newFakeHost(t).v2("cpu memory pids").detect()
	for _, tt := range []struct {
		host   Host
		limits ChildLimits
		want   string
	}{
		{v1, all, "memory.limit_in_bytes=67108864 memory.memsw.limit_in_bytes=67108864 memory.kmem.tcp.limit_in_bytes=16777216 cpu.cfs_quota_us=50000 pids.max=9"},
		{v1, ChildLimits{}, "memory.kmem.tcp.limit_in_bytes=17592186044416"},
		{v2, all, "memory.oom.group=1 memory.swap.max=0 memory.max=67108864 cpu.max=50000 100000 pids.max=9"},
		{v2, ChildLimits{}, "memory.oom.group=1 memory.swap.max=0"},
	} {
		var got []string
		for _, f := range tt.limits.files(tt.host) {
			got = append(got, f.Name+"="+f.Value)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %s; want %s", tt.host.Mode, s, tt.want)
		}
	}
}

// A child whose limits cannot be written is not left behind: a plain directory has
// no limit files.
func TestNewChildLeavesNothing(t *testing.T) {
	f := newFakeHost(t).v1(usual...).hybrid()
	h := f.detect()
	g := f.group(h, inForce(h))
	if _, err := g.NewChild("e1", ChildLimits{PIDs: ptr(int64(9))}); !errors.Is(err, fs.ErrNotExist) || sbxerr.Of(err) != sbxerr.Cgroup {
		t.Errorf("NewChild = %v; want a missing file", err)
	}
	if names, err := g.Children(); len(names) > 0 || err != nil {
		t.Errorf("Children = %q, %v", names, err)
	}
	if _, err := g.NewChild("e1", ChildLimits{PIDs: ptr(int64(257)), MemoryBytes: ptr(int64(1 << 40)), MilliCPU: ptr(int64(4000))}); sbxerr.Of(err) != sbxerr.Limits || strings.Count(err.Error(), "above the sandbox's own") != 3 {
		t.Errorf("NewChild above the sandbox's limits = %v; want three reasons", err)
	}
	gone, err := Open(h, "/caisson/two")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.NewChild("e1", ChildLimits{}); !errors.Is(err, fs.ErrNotExist) || gone.Exists() {
		t.Errorf("NewChild of an absent group = %v, made it: %v", err, gone.Exists())
	}
	v2 := newFakeHost(t).v2("cpu memory pids")
	if _, err := v2.group(v2.detect(), nil).NewChild("e1", ChildLimits{}); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("NewChild of an undelegated group = %v", err)
	}
}

// sandboxGroup is a live group with a shell in it, delegated: it stands for PID 1,
// and does what it is told on its standard input.
func sandboxGroup(t *testing.T, l Limits) (*Group, *shell) {
	t.Helper()
	g := liveGroup(t, liveHost(t), l)
	cmd := exec.Command("/bin/sh", "-c", "read _; while read line; do eval \"$line\"; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := inGroup(t, g, cmd)
	s := &shell{t: t, pid: cmd.Process.Pid, in: in, out: out}
	t.Cleanup(func() {
		_ = in.Close()
		if err := g.Kill(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	if err := g.Delegate(s.pid); err != nil {
		t.Fatal(err)
	}
	return g, s
}

func TestLiveChildKill(t *testing.T) {
	g, sh := sandboxGroup(t, Limits{PIDs: 128, MemoryBytes: 128 << 20, MilliCPU: 2000})
	c, err := g.NewChild("e1", ChildLimits{PIDs: ptr(int64(40))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.NewChild("e1", ChildLimits{}); sbxerr.Of(err) != sbxerr.Exists {
		t.Errorf("a second NewChild = %v; want %s", err, sbxerr.Exists)
	}
	if names, err := g.Children(); err != nil || !slices.Equal(names, []string{"e1"}) {
		t.Errorf("Children = %q, %v", names, err)
	}
	bystander := sh.start("sleep 1000")
	command := sh.start("sh -c 'kill -STOP $$; f() { while :; do (sleep 0.01; f) & wait; done; }; f 2>/dev/null & setsid sh -c \"sleep 1000\" & f 2>/dev/null & wait'")
	waitFor(t, "the command to stop", func() bool { return stateOf(command) == "T" })
	if err := c.Add(command); err != nil {
		t.Fatal(err)
	}
	sh.do("kill -CONT " + strconv.Itoa(command))
	waitFor(t, "the fork bomb to meet its limit", func() bool {
		e, err := c.Events()
		return err == nil && e.PIDsMaxHits > 0
	})
	if e, err := g.Events(); err != nil || e.PIDsMaxHits == 0 {
		t.Errorf("Events of the sandbox = %+v, %v; want the child's counted", e, err)
	}
	if s, err := c.Stats(); err != nil || s.PIDs < 10 || s.PIDs > 40 || s.PIDsMax != 40 || s.CPU == 0 {
		t.Errorf("Stats = %+v, %v", s, err)
	}
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pids, err := c.Procs(); len(pids) > 0 || err != nil {
		t.Errorf("after Kill: %v, %v", pids, err)
	}
	if stateOf(bystander) == "" || stateOf(bystander) == "Z" || stateOf(sh.pid) == "Z" {
		t.Error("Kill of the command hit its neighbours")
	}
	for range 2 {
		if err := c.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := g.Children(); len(names) > 0 || err != nil {
		t.Errorf("after Remove: Children = %q, %v", names, err)
	}
	if err := c.Kill(t.Context()); err != nil {
		t.Errorf("Kill of an absent child = %v", err)
	}
}

// Without cgroup.kill and without cgroup2 at all, a command ends as precisely.
//
//caisson:host needs cgroup v1
func TestLiveChildKillV1(t *testing.T) {
	h := liveHost(t)
	if h.Mode == V2 {
		t.Skip("needs cgroup v1")
	}
	g, sh := sandboxGroup(t, Limits{PIDs: 128, MemoryBytes: 128 << 20, MilliCPU: 2000})
	plain := &Group{host: h, path: g.path}
	plain.host.Mode, plain.host.Unified = V1, ""
	c, err := plain.NewChild("e1", ChildLimits{})
	if err != nil {
		t.Fatal(err)
	}
	command := sh.start("sh -c 'kill -STOP $$; f() { while :; do (sleep 0.01; f) & wait; done; }; f 2>/dev/null & f 2>/dev/null & wait'")
	waitFor(t, "the command to stop", func() bool { return stateOf(command) == "T" })
	if err := c.Add(command); err != nil {
		t.Fatal(err)
	}
	sh.do("kill -CONT " + strconv.Itoa(command))
	waitFor(t, "some processes", func() bool { pids, err := c.Procs(); return err == nil && len(pids) > 5 })
	if err := g.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(t.Context()); sbxerr.Of(err) != sbxerr.State || !strings.Contains(err.Error(), "frozen") {
		t.Errorf("Kill in a frozen sandbox = %v; want %s", err, sbxerr.State)
	}
	if err := g.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Kill(t.Context()), c.Remove(t.Context())); err != nil {
		t.Fatal(err)
	}
	if stateOf(sh.pid) == "Z" {
		t.Error("Kill of the command hit PID 1")
	}
}

// A command out of memory dies alone, and both say why.
func TestLiveChildMemory(t *testing.T) {
	g, sh := sandboxGroup(t, Limits{PIDs: 64, MemoryBytes: 256 << 20, MilliCPU: 1000})
	c, err := g.NewChild("e1", ChildLimits{MemoryBytes: ptr(int64(32 << 20)), MilliCPU: ptr(int64(500))})
	if err != nil {
		t.Fatal(err)
	}
	if live, err := (&Group{host: g.host, path: c.Path()}).limit("cpu"); live != 500 || err != nil {
		t.Errorf("the CPU limit is %d, %v; want 500", live, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	eater := sh.start("sh -c 'kill -STOP $$; echo go | " + helperEnv + "=eat " + self + "'")
	waitFor(t, "the command to stop", func() bool { return stateOf(eater) == "T" })
	if err := c.Add(eater); err != nil {
		t.Fatal(err)
	}
	sh.do("kill -CONT " + strconv.Itoa(eater))
	waitFor(t, "an OOM kill", func() bool { e, err := c.Events(); return err == nil && e.OOMKills > 0 })
	if e, err := g.Events(); err != nil || e.OOMKills == 0 {
		t.Errorf("Events of the sandbox = %+v, %v; want the child's counted", e, err)
	}
	if s := stateOf(sh.pid); s == "Z" || s == "" {
		t.Error("PID 1 died with the command")
	}
	if err := errors.Join(c.Kill(t.Context()), c.Remove(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestLiveAddRefuses(t *testing.T) {
	g, sh := sandboxGroup(t, sane)
	c, err := g.NewChild("e1", ChildLimits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(os.Getpid()); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("Add of a process of the host = %v; want %s", err, sbxerr.Internal)
	}
	if data, err := os.ReadFile("/proc/self/cgroup"); err != nil || strings.Contains(string(data), g.path) {
		t.Fatalf("it was moved: %s, %v", data, err)
	}
	for _, pid := range []int{0, -1, 1 << 30} {
		if err := c.Add(pid); sbxerr.Of(err) != sbxerr.State {
			t.Errorf("Add(%d) = %v; want %s", pid, err, sbxerr.State)
		}
	}
	// A child that is gone takes nobody, and leaves the process where it was.
	if err := c.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	sleeper := sh.start("sleep 1000")
	before, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(sleeper), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(sleeper); sbxerr.Of(err) != sbxerr.Cgroup || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Add to an absent child = %v", err)
	}
	if after, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(sleeper), "cgroup")); err != nil || string(after) != string(before) {
		t.Errorf("the process is in %s, %v; it was in %s", after, err, before)
	}
}

// What a command's own group costs; the numbers are for people.
func TestLiveChildCost(t *testing.T) {
	g, sh := sandboxGroup(t, sane)
	limits := ChildLimits{ptr(int64(64 << 20)), ptr(int64(500)), ptr(int64(16))}
	var makes, adds, finds, removes []time.Duration
	since := func(to *[]time.Duration, from time.Time) { *to = append(*to, time.Since(from)) }
	for i := range 10 {
		pid := sh.start("sleep 1000")
		began := time.Now()
		c, err := g.NewChild("e"+strconv.Itoa(i), limits)
		since(&makes, began)
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		_, _ = HostPID(g, 1<<21) // not there: the whole list is read
		since(&finds, began)
		began = time.Now()
		if err := c.Add(pid); err != nil {
			t.Fatal(err)
		}
		since(&adds, began)
		if err := c.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if err := c.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		since(&removes, began)
	}
	for name, took := range map[string][]time.Duration{"NewChild": makes, "Add": adds, "HostPID": finds, "Remove": removes} {
		slices.Sort(took)
		t.Logf("%s: median %s, least %s, most %s", name, took[len(took)/2], took[0], took[len(took)-1])
	}
}
