package ctrd

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd/shimcall"
)

// grouped returns a sandbox of a group.
func groupedSandbox(t testing.TB, id, group string) runtime.Container {
	t.Helper()
	c := sandbox(t, id)
	c.Group = group
	return c
}

//caisson:host the engine's own affair, the same on every kernel
func TestGroup(t *testing.T) {
	testGroup(t, connect(t, supervise(t)))
}

//caisson:host containerd 1.7 is not built for the virtual machine
func TestGroupOn17(t *testing.T) {
	address, _ := server17(t)
	testGroup(t, connectTo(t, EngineConfig{
		Address: address, Namespace: "ctrdtest", Runc: filepath.Join(binDir(t), "runc"), RuncRoot: filepath.Join(scratch(t).State, "runc"),
	}))
}

func testGroup(t *testing.T, e *Engine) {
	apart := start(t, e, sandbox(t, "apart"))
	pids := map[string]int{}
	for _, id := range []string{"g1", "g2", "g3"} {
		pids[id] = start(t, e, groupedSandbox(t, id, "all"))
	}
	shim := parentOf(t, pids["g1"])
	if parentOf(t, pids["g2"]) != shim || parentOf(t, pids["g3"]) != shim || parentOf(t, apart) == shim {
		t.Fatalf("the shims are %d, %d, %d, and %d of the one apart", shim, parentOf(t, pids["g2"]), parentOf(t, pids["g3"]), parentOf(t, apart))
	}
	if serves, err := e.serves(e.socketName("all")); !serves || err != nil {
		t.Errorf("the shim of the group is not found by its socket: %v", err)
	}
	// The one that the shim was started for goes first.
	if err := e.Delete(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	wantState(t, e, "g1", StatusAbsent)
	wantState(t, e, "g2", StatusRunning)
	if alive(pids["g1"]) || !alive(pids["g2"]) || !alive(shim) {
		t.Errorf("alive: g1 %v, g2 %v, shim %v", alive(pids["g1"]), alive(pids["g2"]), alive(shim))
	}
	if err := e.Delete(t.Context(), "g1"); err != nil { // absent: not even looked at is the shim
		t.Fatal(err)
	}
	if !alive(pids["g2"]) || !alive(shim) {
		t.Error("deleting what is absent hit the group")
	}

	kill(t, shim)
	var wg sync.WaitGroup
	for _, id := range []string{"g2", "g3"} {
		wg.Go(func() {
			if err := e.Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range []string{"g2", "g3"} {
		wantState(t, e, id, StatusAbsent)
		await(t, "the end of "+id, func() bool { return !alive(pids[id]) })
		if left, _ := filepath.Glob(filepath.Join(e.cfg.RuncRoot, "*", id)); len(left) > 0 {
			t.Errorf("runc still knows %q", left)
		}
	}
	if !alive(apart) {
		t.Error("the one apart died with the group's shim")
	}
	// The group's name is good again.
	again := start(t, e, groupedSandbox(t, "g4", "all"))
	if err := e.Delete(t.Context(), "g4"); err != nil {
		t.Error(err)
	}
	await(t, "the end of the last one", func() bool { return !alive(again) })
	if e.cfg.Sockets == "" {
		return
	}
	if left, _ := filepath.Glob(filepath.Join(e.cfg.Sockets, "*")); len(left) != 1 { // that of the one apart
		t.Errorf("sockets that are left: %q", left)
	}
	if err := e.Delete(t.Context(), "apart"); err != nil {
		t.Error(err)
	}
	await(t, "the end of the last socket", func() bool {
		left, _ := filepath.Glob(filepath.Join(e.cfg.Sockets, "*"))
		return len(left) == 0
	})
}

// Within a group, containerd needs the shim's program for the first container only:
// to have the next made, and all of them removed, ours knows what to say.
func TestGroupNeedsNoProgram(t *testing.T) {
	s := supervise(t)
	dir := t.TempDir()
	for _, name := range []string{ShimProgram, shimcall.Program} {
		data, err := os.ReadFile(filepath.Join(s.cfg.BinDir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e := connectTo(t, EngineConfig{
		Address: s.Address(), Namespace: "ctrdtest", Shim: filepath.Join(dir, ShimProgram), Runc: filepath.Join(s.cfg.BinDir, "runc"), RuncRoot: s.cfg.RuncRoot(),
	})
	pids := []int{start(t, e, groupedSandbox(t, "n1", "all"))}
	program, away := filepath.Join(dir, shimcall.Program), filepath.Join(dir, "away")
	if err := os.Rename(program, away); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Create(t.Context(), groupedSandbox(t, "n2", "another")); err == nil || !strings.Contains(err.Error(), "caisson-shim: run "+program) {
		t.Errorf("a first container without the program: %v", err)
	}
	pids = append(pids, start(t, e, groupedSandbox(t, "n3", "all")))
	for _, id := range []string{"n1", "n3"} {
		if err := e.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for _, pid := range pids {
		await(t, "the end of the containers", func() bool { return !alive(pid) })
	}
	if said := s.out.Tail(); strings.Contains(said, "clean") || strings.Contains(said, shimcall.Program) {
		t.Errorf("containerd said:\n%s", said)
	}
}

// The end of a group's last container and the making of its next may meet.
//
//caisson:host takes minutes under emulation and has nothing to do with cgroups
func TestGroupChurn(t *testing.T) {
	e := connect(t, supervise(t))
	c := groupedSandbox(t, "c0", "churn")
	for i := range 8 {
		c.ID = "c" + strconv.Itoa(i)
		c.Spec.Linux.CgroupsPath = testCgroup + "/" + c.ID
		start(t, e, c)
		if err := e.Delete(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		mine := c
		spec, linux := *c.Spec, *c.Spec.Linux
		mine.ID, mine.Spec, spec.Linux = "p"+strconv.Itoa(i), &spec, &linux
		linux.CgroupsPath = testCgroup + "/" + mine.ID
		wg.Go(func() {
			for range 5 {
				_, err := e.Create(context.Background(), mine)
				if err = errors.Join(err, e.Delete(context.Background(), mine.ID)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A shared shim outlives its server, is found again, and ends with its last one.
//
//caisson:host the engine's own affair, the same on every kernel
func TestGroupServerKilled(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	pids := map[string]int{}
	for _, id := range []string{"k1", "k2"} {
		pids[id] = start(t, e, groupedSandbox(t, id, "all"))
	}
	shim := parentOf(t, pids["k1"])
	server := s.Status().PID
	kill(t, server)
	await(t, "the server's restart", func() bool { p := s.Status().PID; return p != 0 && p != server })
	for _, id := range []string{"k1", "k2"} {
		wantState(t, e, id, StatusRunning)
	}
	// One more joins the shim, which the new server did not start.
	if third := start(t, e, groupedSandbox(t, "k3", "all")); parentOf(t, third) != shim {
		t.Errorf("the third got shim %d, not %d", parentOf(t, third), shim)
	}
	for _, id := range []string{"k1", "k3", "k2"} {
		if err := e.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		wantState(t, e, id, StatusAbsent)
	}
	await(t, "the end of the shim", func() bool { return !alive(shim) })
}

// A create of a group that meets a dying server ends in a container or in none, and
// never takes the others with it; nor does what is left of it keep the shim for good.
//
//caisson:host the engine's own affair, the same on every kernel
func TestGroupServerKilledDuringCreate(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	first := start(t, e, groupedSandbox(t, "first", "all"))
	shim := parentOf(t, first)
	for i, moment := range []time.Duration{0, 10, 25, 40} { // spread over what a create takes
		id := "c" + strconv.Itoa(i)
		c := groupedSandbox(t, id, "all")
		done := make(chan error, 1)
		go func() { _, err := e.Create(context.Background(), c); done <- err }()
		sleep(t.Context(), moment*time.Millisecond)
		kill(t, s.Status().PID)
		if err := <-done; err != nil {
			t.Logf("create %s: %v", id, err)
			wantState(t, e, id, StatusAbsent)
		}
		if err := e.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
		wantState(t, e, "first", StatusRunning)
	}
	if !alive(first) || parentOf(t, first) != shim {
		t.Fatal("the first one did not live on in its shim")
	}
	if err := e.Delete(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the shim", func() bool {
		if err := e.endTainted(namespaced(t, e)); err != nil {
			t.Fatal(err)
		}
		return !alive(shim)
	})
}

// An idle shim that belongs to no container is ended; one that does, is not.
//
//caisson:host the engine's own affair, the same on every kernel
func TestEndOrphans(t *testing.T) {
	e := connect(t, supervise(t))
	pid := start(t, e, groupedSandbox(t, "o1", "all"))
	shim := parentOf(t, pid)
	kill(t, pid)
	await(t, "the end of the process", func() bool { return !hasChildren(shim) })
	ctx := namespaced(t, e)
	if _, err := e.endOrphans(ctx); err != nil || !alive(shim) {
		t.Fatalf("the shim of a stopped container was ended: %v", err)
	}
	// Nobody knows of it any more.
	if err := e.client.ContainerService().Delete(ctx, "o1"); err != nil {
		t.Fatal(err)
	}
	made, err := e.gate.create(ctx, e.socketName("all"), "o2")
	if err != nil {
		t.Fatal(err)
	}
	if busy, err := e.endOrphans(ctx); err != nil || !busy["o1"] || !alive(shim) {
		t.Errorf("the shim of one that is being made was ended: %v, %v", busy, err)
	}
	made(false)
	if _, err := e.endOrphans(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the shim", func() bool { return !alive(shim) })
	if err := e.Delete(t.Context(), "o1"); err != nil {
		t.Fatal(err)
	}
}

func TestGrouped(t *testing.T) {
	c := runtime.Container{ID: "x", Spec: &specs.Spec{Annotations: map[string]string{"a": "b"}}}
	if grouped(c) != c.Spec {
		t.Error("a container by itself gets another spec")
	}
	c.Group = "all"
	if got := grouped(c).Annotations; !maps.Equal(got, map[string]string{"a": "b", shimcall.GroupAnnotation: "all"}) {
		t.Errorf("annotations: %v", got)
	}
	if len(c.Spec.Annotations) != 1 {
		t.Errorf("the caller's spec became %v", c.Spec.Annotations)
	}
	e := &Engine{cfg: EngineConfig{Runc: "/runc", RuncRoot: "/run"}}
	for _, bad := range []runtime.Container{
		{ID: "x", Spec: &specs.Spec{}, Group: "a/b"}, {ID: "x", Spec: &specs.Spec{}, Group: ".."}, {ID: "x", Spec: &specs.Spec{}, Group: strings.Repeat("a", 100)},
		{ID: "x", Spec: &specs.Spec{Annotations: map[string]string{shimcall.GroupAnnotation: "y"}}},
	} {
		if _, err := e.Create(t.Context(), bad); !errors.Is(err, sbxerr.Internal) {
			t.Errorf("group %q, annotations %v: %v; want %s", bad.Group, bad.Spec.Annotations, err, sbxerr.Internal)
		}
	}
}

func TestParseUnix(t *testing.T) {
	text := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/x/s/abc\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 4712\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 4713 @abstract\nx\n"
	want := map[string]string{"socket:[4711]": "abc", "socket:[4713]": "@abstract", "socket:[Inode]": "Path"}
	if got := parseUnix(text); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if held := slices.Collect(maps.Keys(parseUnix(""))); len(held) > 0 {
		t.Errorf("%q", held)
	}
}

// A create that is cancelled in an empty group does not take down the one that waits
// for its shim.
//
//caisson:host half a minute of emulation, and the engine's own affair
func TestGroupCreateCancelled(t *testing.T) {
	e := connect(t, supervise(t))
	for i, moment := range []time.Duration{1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 80} { // spread over what a create takes
		first, second := groupedSandbox(t, "a"+strconv.Itoa(i), "all"), groupedSandbox(t, "b"+strconv.Itoa(i), "all")
		ctx, cancel := context.WithTimeout(t.Context(), moment*time.Millisecond)
		cancelled := make(chan error, 1)
		go func() { _, err := e.Create(ctx, first); cancelled <- err }()
		sleep(t.Context(), moment*time.Millisecond/2)
		if _, err := e.Create(t.Context(), second); err != nil {
			t.Errorf("beside one that was cancelled after %dms: %v", moment, err)
		}
		if err := <-cancelled; err != nil {
			t.Logf("after %dms: %v", moment, err)
		}
		cancel()
		for _, id := range []string{first.ID, second.ID} {
			if err := e.Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	}
}
