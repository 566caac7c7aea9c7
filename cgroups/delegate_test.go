package cgroups

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParseNSPID(t *testing.T) {
	for text, want := range map[string]int{
		"Name:\tx\nNSpid:\t4711\t7\nVmPeak: 1\n": 7,
		"NSpid:\t4711\t7\t1\n":                   7,
		"NSpid:\t4711\n":                         0,
		"NSpid:\n":                               0,
		"NSpid:\t1\tx\n":                         0,
		"NSpid:\t1\t-3\n":                        0,
		"Name:\tNSpid:\t1\t2\n":                  0,
		"":                                       0,
	} {
		if got := parseNSPID(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParseNSPID(f *testing.F) {
	f.Add("Name:\tx\nNSpid:\t4711\t7\n")
	f.Fuzz(func(t *testing.T, s string) {
		if n := parseNSPID(s); n < 0 {
			t.Errorf("%q: %d", s, n)
		}
	})
}

func TestLiveHostPID(t *testing.T) {
	g := liveGroup(t, liveHost(t), sane)
	cmd := exec.Command("/bin/sh", "-c", "read _; sleep 1000 & echo $!; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := inGroup(t, g, cmd)
	defer in.Close()
	buf := make([]byte, 16)
	n, err := out.Read(buf)
	inside, convErr := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || convErr != nil {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if got, err := HostPID(g, 1); got != cmd.Process.Pid || err != nil {
		t.Errorf("HostPID(1) = %d, %v; want %d", got, err, cmd.Process.Pid)
	}
	got, err := HostPID(g, inside)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process to be the sleeping one", func() bool {
		name, err := os.ReadFile("/proc/" + strconv.Itoa(got) + "/comm")
		return err == nil && string(name) == "sleep\n"
	})
	if n, err := g.Processes(); n != 2 || err != nil {
		t.Errorf("Processes = %d, %v; want the shell and the sleep", n, err)
	}
	for inside, code := range map[int]sbxerr.Code{inside + 1000: sbxerr.NotFound, os.Getpid() + 1<<20: sbxerr.NotFound, 0: sbxerr.Internal, -1: sbxerr.Internal} {
		if got, err := HostPID(g, inside); sbxerr.Of(err) != code {
			t.Errorf("HostPID(%d) = %d, %v; want %s", inside, got, err, code)
		}
	}
	killAndRemove(t, g)
	_ = cmd.Wait() // killed
}

// On v2 PID 1 moves into a leaf, its cgroup namespace stays rooted at the group, and
// all limits stay in force. On v1 nothing changes.
func TestLiveDelegate(t *testing.T) {
	h := liveHost(t)
	g := liveGroup(t, h, sane)
	starter := helperCommand(t, "namespace")
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := inGroup(t, g, starter)
	defer in.Close()
	sh := &shell{t: t, pid: starter.Process.Pid, in: in, out: out}
	if got := sh.line(); got != "here" {
		t.Fatalf("it says %q", got)
	}
	before, err := os.ReadFile("/proc/" + strconv.Itoa(sh.pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Delegate(sh.pid); err != nil {
			t.Fatal(err)
		}
	}
	if diffs := withoutDeviceGuard(g.Verify(sane)); len(diffs) > 0 {
		t.Errorf("Verify = %v", diffs)
	}
	sh.do("")
	var inside []string
	for line := sh.line(); line != "end <nil>"; line = sh.line() {
		inside = append(inside, line)
	}
	after, err := os.ReadFile("/proc/" + strconv.Itoa(sh.pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if h.Mode != V2 {
		if string(before) != string(after) {
			t.Errorf("it was in %s and is in %s", before, after)
		}
	} else {
		if got, want := strings.TrimSpace(string(after)), "0::"+filepath.Join(g.path, InitChild); got != want {
			t.Errorf("it is in %q; want %q", got, want)
		}
		if got := strings.Join(inside, " "); got != "0::/"+InitChild {
			t.Errorf("inside it is in %q; want no more of the host to show", got)
		}
	}
	if pids, err := g.Procs(); err != nil || len(pids) == 0 {
		t.Errorf("Procs = %v, %v", pids, err)
	}
	if err := g.Delegate(os.Getpid()); h.Mode == V2 && sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("Delegate of a process of the host = %v", err)
	}
	if err := g.Delegate(1 << 30); h.Mode == V2 && sbxerr.Of(err) != sbxerr.State {
		t.Errorf("Delegate of an absent process = %v", err)
	}
	killAndRemove(t, g)
	_, _ = io.Copy(io.Discard, out)
	_ = starter.Wait() // killed
}

// A group with a process beside PID 1 cannot be delegated: that process would have
// no place.
func TestLiveDelegateRefusesCompany(t *testing.T) {
	h := liveHost(t)
	g := liveGroup(t, h, sane)
	cmd := exec.Command("/bin/sh", "-c", "read _; sleep 1000 & echo here; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := inGroup(t, g, cmd)
	defer in.Close()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	err = g.Delegate(cmd.Process.Pid)
	if h.Mode == V2 && sbxerr.Of(err) != sbxerr.Cgroup || h.Mode != V2 && err != nil { // v1 has no such rule
		t.Errorf("Delegate = %v; want a refusal on v2", err)
	}
	killAndRemove(t, g)
	_ = cmd.Wait() // killed
}
