package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// deep is a configuration in which sandboxes may have two generations below them.
const deep = "profiles: {team: {nested: {enter: true, depth: 2}}}\n"

// tinyBox makes one of which several fit into a child's limits.
func tinyBox(name string, more ...string) []string {
	return append([]string{"create", "-o", "json", "--name", name, "-m", "32M", "--cpus", "0.1", "--pids", "20"}, more...)
}

// A child makes children where the profile says so. They count against the budget of the
// outermost sandbox, which does not see them.
func TestNestedGenerations(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, deep)
	in := nestedBox(t, d, "outer", "--profile", "team", "--nested-max", "3", "--ttl", "1h")
	in.run(t, smallBox("child", "--profile", "team", "--nested", "--tmpfs", "48M", "-m", "128M")...)
	w := in.within(t, "child")
	if out := w.run(t, "run", "-m", "32M", "--cpus", "0.1", "--pids", "20", "--", "sh", "-c", "echo $((6*7))"); out != "42\n" {
		t.Errorf("a grandchild said %q", out)
	}
	w.run(t, tinyBox("grandchild")...)
	w.refused(t, "SBX-805", tinyBox("deeper", "--profile", "team", "--nested")...)
	w.refused(t, "SBX-805", tinyBox("larger", "-m", "129M")...)
	w.refused(t, "SBX-805", tinyBox("longer", "--ttl", "2h")...)
	if l := inspect(t, d, "grandchild"); l.Parent != inspect(t, d, "child").ID || l.ExpiresAt == nil || l.ExpiresAt.After(inspect(t, d, "outer").ExpiresAt.Add(30*time.Second)) {
		t.Errorf("from outside: %+v", l)
	}
	in.refused(t, "SBX-107", "inspect", "-o", "json", "grandchild")
	in.refused(t, "SBX-107", "rm", "-o", "json", "--force", "grandchild")
	w.refused(t, "SBX-107", "inspect", "-o", "json", "outer")
	w.refused(t, "SBX-107", "inspect", "-o", "json", "child")

	check := func() {
		t.Helper()
		w.run(t, tinyBox("third")...)
		f := w.refused(t, "SBX-113", tinyBox("fourth")...)
		if all := f.Error.Message + f.Error.Cause; !strings.Contains(all, "the budget of a sandbox above") {
			t.Errorf("message %q", all)
		}
		in.refused(t, "SBX-113", smallBox("sibling", "-m", "16M")...)
		w.run(t, "rm", "--force", "third")
	}
	check()
	d.Kill(t)
	d.Launch(t)
	check()

	in.run(t, "restart", "child") // its children are gone when it is there again
	if n := len(list(t, d)); n != 2 {
		t.Errorf("%d sandboxes after the restart of the child: %+v", n, list(t, d))
	}
	in.within(t, "child").run(t, tinyBox("grandchild")...)
	in.run(t, "rm", "--force", "child")
	if n := len(list(t, d)); n != 1 {
		t.Errorf("%d sandboxes after the removal of the child", n)
	}
	in.run(t, smallBox("plain")...) // strict, as a child of a sandbox that may have more
	in.refused(t, "SBX-805", smallBox("wrong", "--profile", "compat")...)
}

// All generations end with the outermost sandbox, also where it ends while no daemon is
// there, and a generation alone with the child that made it.
func TestNestedGenerationsEnd(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, deep)
	family := func() {
		in := nestedBox(t, d, "outer", "--profile", "team")
		in.run(t, smallBox("child", "--profile", "team", "--nested", "--tmpfs", "48M", "-m", "128M")...)
		w := in.within(t, "child")
		w.run(t, tinyBox("grandchild")...)
		w.run(t, tinyBox("over")...)
		w.run(t, "stop", "over")
	}
	family()
	d.Run(t, "rm", "--force", "outer")
	if n := len(list(t, d)); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	d.AwaitNoSandbox(t)

	for _, name := range []string{"outer", "child"} {
		family()
		left := map[string]int{"outer": 1, "child": 2}[name] // it keeps what it wrote
		pid := inspect(t, d, name).PID
		d.Kill(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.Launch(t)
		await(t, "the end below "+name, func() bool { return len(list(t, d)) == left })
		d.Run(t, "rm", "--force", "outer")
		d.AwaitNoSandbox(t)
	}
}

// A ready sandbox becomes a child as a new one does, also with a tmpfs of its profile.
func TestNestedChildOutOfAPool(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "profiles: {team: {mounts: [{type: tmpfs, target: /scratch, size: 1M}]}}\npools: [{profile: team, size: 1}]\n")
	in := nestedBox(t, d, "outer", "--profile", "team")
	awaitReady(t, d, 1)
	hits := poolOf(t, d).Hits
	in.run(t, "create", "--name", "child", "-m", "64M", "--cpus", "0.5", "--profile", "team")
	if now := poolOf(t, d).Hits; now != hits+1 {
		t.Errorf("the pool served %d, then %d", hits, now)
	}
	d.Run(t, "exec", "child", "--", "touch", "/scratch/a")
}
