package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// caller is a daemon whose containerd calls a shim program that ends, or waits, at
// the point that it is told (runtime/ctrd/shimcall, Failpoint).
type caller struct {
	*harness.Daemon
	file string
}

func newCaller(t *testing.T, settings string) *caller {
	t.Helper()
	bin := harness.ProgramsWithout(t, "caisson-shim")
	program, err := os.ReadFile(filepath.Join(failing, "caisson-shim"))
	if err == nil { // a link would not do: it looks for others where it lies itself
		err = os.WriteFile(filepath.Join(bin, "caisson-shim"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{harness.New(t), filepath.Join(bin, "failpoint")}
	c.Settings = "ids: {blocks: 64}\n" + settings
	c.Launch(t, "--bin-dir", bin)
	t.Cleanup(func() {
		c.Stop(t)
		c.CheckNothingLeft(t)
	})
	return c
}

// arm lets the next call that comes to a point end or wait there.
func (c *caller) arm(t *testing.T, what string) {
	t.Helper()
	c.disarm(t)
	if err := os.WriteFile(c.file+".new", []byte(what), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		t.Fatal(err)
	}
}

// disarm lets the call that waits go on.
func (c *caller) disarm(t *testing.T) {
	t.Helper()
	for _, file := range glob(t, c.file+"*") {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// came waits until a call has come to its point.
func (c *caller) came(t *testing.T) {
	t.Helper()
	await(t, "call at its point", func() bool { return len(glob(t, c.file)) == 0 })
}

// waiting returns the process of a call that waits at its point.
func (c *caller) waiting(t *testing.T) (pid int) {
	t.Helper()
	c.came(t)
	for _, file := range glob(t, c.file+".*") {
		pid, _ = strconv.Atoi(strings.TrimPrefix(filepath.Ext(file), "."))
	}
	if pid == 0 {
		t.Fatal("no call waits")
	}
	return pid
}

// fails makes a request whose call is killed at a point. It is refused soon, with a
// code.
func (c *caller) fails(t *testing.T, point string, request ...string) {
	t.Helper()
	c.arm(t, point+"=kill")
	r := c.Try(request...)
	c.came(t)
	checkTyped(t, r)
	if r.Duration > patience/6 {
		t.Errorf("the refusal took %s", r.Duration)
	}
}

// awaitShim waits for a shim that serves, which it does soon after it has its log.
func (c *caller) awaitShim(t *testing.T) {
	t.Helper()
	await(t, "shim", func() bool {
		return slices.ContainsFunc(shims(t, c.Daemon), func(pid int) bool {
			log, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", pid))
			return filepath.Base(log) == "log"
		})
	})
}

// stopShim stops the shim that a killed call has started, which therefore never
// serves.
func (c *caller) stopShim(t *testing.T, call int) {
	t.Helper()
	awaitEnd(t, call) // it would end what it has started and is stopped (_exit(2))
	for _, pid := range shims(t, c.Daemon) {
		stopOrGo(t, pid, syscall.SIGSTOP)
	}
}

// awaitEnd waits for the end of a process.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	await(t, "end of a process", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", pid)) == "" })
}

// empty removes every sandbox, and checks that nothing is left of them.
func (c *caller) empty(t *testing.T) {
	t.Helper()
	for _, s := range list(t, c.Daemon) {
		c.Run(t, "rm", "--force", s.ID)
	}
	checkSound(t, c.Daemon)
}

// The steps of a call that starts a shim, and of one that finds the shim of its group.
var (
	startSteps = strings.Fields("start/called start/alone start/bound start/listens start/linked start/served start/scored start/answered")
	joinSteps  = strings.Fields("start/called start/answered")
)

// A call of the shim program that is killed at any of its steps is a failure with a
// code, and nothing is left of what it had made, no shim and no socket; the request
// can be repeated. The daemon is not started again for that.
func TestKilledShimCall(t *testing.T) {
	t.Parallel() // beside tests that wait
	for name, with := range map[string]struct {
		settings string
		request  []string
	}{
		"own shim":     {"sandboxes: {per_shim: 1}\n", strings.Fields("run --json -- true")},
		"shared shims": {"sandboxes: {per_shim: 4}\n", strings.Fields("create --json --name made")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCaller(t, with.settings)
			for _, step := range need.Turn(t, startSteps) {
				t.Run(step, func(t *testing.T) {
					c.fails(t, step, with.request...)
					if l := list(t, c.Daemon); len(l) != 0 {
						t.Errorf("the failed request left %+v", l)
					}
					checkSound(t, c.Daemon)
					c.Run(t, with.request...)
					c.empty(t)
				})
			}
			t.Run("late", func(t *testing.T) {
				c.arm(t, "start/answered=wait")
				request := begin(t, c.Daemon, with.request...)
				pid := c.waiting(t)
				c.awaitShim(t)
				kill9(t, pid)
				checkTyped(t, request.end(t))
				checkSound(t, c.Daemon)
			})
		})
	}
}

// Sandboxes that share a shim do not notice that a call for one more, or for one
// less, is killed.
func TestKilledShimCallOfGroup(t *testing.T) {
	c := newCaller(t, "sandboxes: {per_shim: 8}\n")
	c.Run(t, "create", "--name", "stays")
	before := shims(t, c.Daemon)
	for _, step := range joinSteps {
		c.fails(t, step, "create", "--json")
		checkSound(t, c.Daemon)
		c.Run(t, "create", "--name", step[len("start/"):])
	}
	for _, end := range []struct{ name, step string }{{"called", "delete/answered"}, {"answered", "delete/called"}, {"stays", "delete/called"}} {
		if after := shims(t, c.Daemon); len(before) != 1 || !slices.Equal(before, after) {
			t.Errorf("there were the shims %v, and are %v; want one, and the same", before, after)
		}
		c.arm(t, end.step+"=kill")
		c.Run(t, "rm", "--force", end.name)
		c.came(t)
		checkSound(t, c.Daemon)
	}
}

// Those of its group that wait for a call that is killed are made, even if the shim
// that it has started never serves.
func TestKilledShimCallOfBurst(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCaller(t, "sandboxes: {per_shim: 4}\n")
	c.arm(t, "start/answered=wait")
	creates := []*call{begin(t, c.Daemon, "create", "--json"), begin(t, c.Daemon, "create", "--json"), begin(t, c.Daemon, "create", "--json")}
	pid := c.waiting(t)
	c.awaitShim(t)
	kill9(t, pid)
	c.stopShim(t, pid)
	failed := 0
	for _, create := range creates {
		if r := create.end(t); r.Code != 0 {
			checkTyped(t, r)
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d of three creates failed, want that of the killed call", failed)
	}
	if n := len(shims(t, c.Daemon)); n != 1 {
		t.Errorf("there are %d shims, want one", n)
	}
	checkSound(t, c.Daemon)
	c.empty(t)
}

// A sandbox lives on without its shim where containerd's call to remove it was killed
// as well. Its group gets other shims, whatever of their beginning is killed, and it
// leaves nothing either when it is removed.
func TestKilledShimCallAfterShim(t *testing.T) {
	t.Parallel() // beside tests that wait
	c := newCaller(t, "sandboxes: {per_shim: 32}\n")
	c.Run(t, "create", "--name", "stays")
	c.arm(t, "delete/called=kill")
	for _, pid := range shims(t, c.Daemon) {
		kill9(t, pid)
	}
	c.came(t)
	for _, step := range need.Turn(t, startSteps) {
		c.fails(t, step, "create", "--json", "--name", "made")
		checkSound(t, c.Daemon)
		c.Run(t, "create", "--name", "made")
		checkSound(t, c.Daemon)
		c.Run(t, "rm", "--force", "made")
		await(t, "end of the shim", func() bool { return len(shims(t, c.Daemon)) == 0 })
	}
	c.arm(t, "start/answered=wait")
	create := begin(t, c.Daemon, "create", "--json")
	pid := c.waiting(t)
	c.awaitShim(t)
	kill9(t, pid)
	c.stopShim(t, pid)
	checkTyped(t, create.end(t))
	if r := c.Run(t, "create"); r.Duration > patience/6 {
		t.Errorf("a create took %s", r.Duration)
	}
	c.fails(t, "start/answered", "create", "--json")
	c.empty(t)
}

// A call that is under way when its containerd dies does not go on beside those of
// the next one: it would take the socket of a shim that serves, whose sandboxes the
// containerd after that would take for dead.
func TestOutlivedContainerd(t *testing.T) {
	c := newCaller(t, "sandboxes: {per_shim: 32}\n")
	endEngine := func() {
		for _, pid := range programs(t, c.Daemon, "containerd") {
			kill9(t, pid)
		}
	}
	for _, step := range []string{"start/alone", "start/listens"} {
		c.arm(t, step+"=wait")
		create := begin(t, c.Daemon, "create", "--json")
		pid := c.waiting(t)
		endEngine()
		if r := create.end(t); r.Code != 0 {
			t.Fatalf("%s: %+v", step, r)
		}
		c.disarm(t) // it would go on now
		awaitEnd(t, pid)
		c.Run(t, "create")
		endEngine()
		c.Run(t, "create")
		for _, s := range list(t, c.Daemon) {
			if s.State != "running" {
				t.Errorf("%s: sandbox %s is %s", step, s.ID, s.State)
			}
		}
		c.empty(t)
	}
}
