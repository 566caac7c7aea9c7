package cgroups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// testParent is unique to this run of the tests.
var testParent = "caisson-test-" + strconv.Itoa(os.Getpid())

// helperEnv makes the test binary the process that is put into a group.
const helperEnv = "CAISSON_CGROUPS_HELPER"

// TestMain is also the helper's main, and fails the package if a group of the
// tests is left behind.
func TestMain(m *testing.M) {
	if role := os.Getenv(helperEnv); role != "" {
		os.Exit(helper(role))
	}
	code := m.Run()
	left, err := filepath.Glob("/sys/fs/cgroup/*/" + testParent + "*")
	top, err2 := filepath.Glob("/sys/fs/cgroup/" + testParent + "*")
	if left = append(left, top...); len(left) > 0 || err != nil || err2 != nil {
		fmt.Fprintln(os.Stderr, "leak:", left, err, err2)
		code = 1
	}
	os.Exit(code)
}

// spinCPU is how much CPU time the role "spin" uses up: several periods' worth
// of the least quota, however busy the host is.
const spinCPU = 20 * time.Millisecond

func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// helper waits until it is told to go, so that it is in the group by then.
func helper(role string) int {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1
	}
	switch role {
	case "eat":
		var hoard [][]byte
		for range 1024 {
			chunk := make([]byte, 1<<20)
			for i := 0; i < len(chunk); i += 4096 {
				chunk[i] = 1
			}
			hoard = append(hoard, chunk)
		}
		return len(hoard) % 2
	case "namespace":
		return newNamespace()
	case "hold":
		return hold()
	case "spin":
		for begin := cpuTime(); cpuTime() < begin+spinCPU; { // the program's start may take as much
		}
	}
	return 0
}

// hold keeps memory that cannot be reclaimed, and faults what can be in again and
// again, until its input ends.
func hold() int {
	held := make([]byte, 96<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return 1
	}
	text, err := unix.Mmap(int(program.Fd()), 0, 4<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 1
	}
	go func() {
		for sum := byte(0); ; {
			for i := 0; i < len(text); i += 4096 {
				sum += text[i]
			}
			time.Sleep(time.Millisecond)
			held[0] = sum
		}
	}()
	fmt.Println("holding")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// newNamespace makes a cgroup namespace where the process is, as a runtime does, and
// then says in which group it sees itself whenever it is told to.
func newNamespace() int {
	goruntime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("here")
	for in := bufio.NewReader(os.Stdin); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return 0
		}
		data, err := os.ReadFile("/proc/thread-self/cgroup")
		fmt.Printf("%send %v\n", data, err)
	}
}

// liveHost skips t unless groups can be made here.
func liveHost(t *testing.T) Host {
	t.Helper()
	need.Root(t, "it makes cgroups")
	h, err := Detect()
	switch {
	case err != nil:
		need.Missing(t, fmt.Sprintf("cgroups: %v", err))
	case h.Mode == V2 && !h.delegated():
		need.Missing(t, "the controllers of cgroup v2 enabled below the root")
	}
	h.HugePageSizes = nil // liveGroup does not hand the controller down
	return h
}

// liveGroup makes a group with l in force, as a runtime and Tighten would.
func liveGroup(t *testing.T, h Host, l Limits) *Group {
	t.Helper()
	g, err := Open(h, "/"+testParent+"/one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(g.Kill(ctx), g.Remove(ctx), RemoveParent(ctx, h, testParent)); err != nil {
			t.Error(err)
		}
	})
	if _, err := makeParent(h, testParent); err != nil {
		t.Fatal(err)
	}
	if err := g.tryLimits(l); err != nil {
		t.Fatal(err)
	}
	if h.Mode != V2 {
		allowDevices(t, g)
	}
	if err := g.Tighten(l); err != nil {
		t.Fatal(err)
	}
	return g
}

// allowDevices writes the rules that runc writes.
func allowDevices(t *testing.T, g *Group) {
	t.Helper()
	if err := writeFile(g.dir("devices"), "devices.deny", "a"); err != nil {
		t.Fatal(err)
	}
	for _, rule := range append(strings.Split(deviceList(), "; "), runcAllows...) {
		if err := writeFile(g.dir("devices"), "devices.allow", rule); err != nil {
			t.Fatal(err)
		}
	}
}

// inGroup starts a process, puts it into g and then lets it go on. Standard
// input of the process is returned for whatever else it is to be told.
func inGroup(t *testing.T, g *Group, cmd *exec.Cmd) io.WriteCloser {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range g.dirs() {
		if g.host.Mode != V2 && dir == g.dir("cpuset") {
			continue // takes no process before it is given CPUs and memory nodes
		}
		if err := writeFile(dir, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Error(err)
		}
	}
	if _, err := io.WriteString(stdin, "go\n"); err != nil {
		t.Error(err)
	}
	return stdin
}

func helperCommand(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), helperEnv+"="+role)
	return cmd
}
