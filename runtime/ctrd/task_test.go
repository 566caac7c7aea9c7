package ctrd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestLifecycle(t *testing.T) {
	testLifecycle(t, connect(t, supervise(t)))
}

//caisson:host containerd 1.7 is not built for the virtual machine
func TestLifecycleOn17(t *testing.T) {
	address, dir := server17(t)
	bin := binDir(t)
	for _, tt := range []struct{ name, shim string }{
		{"its own shim", ""},
		{"its own shim by path", filepath.Join(dir, "containerd-shim-runc-v2")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testLifecycle(t, connectTo(t, EngineConfig{
				Address: address, Namespace: "ctrdtest", Shim: tt.shim,
				Runc: filepath.Join(bin, "runc"), RuncRoot: filepath.Join(scratch(t).State, "runc"),
			}))
		})
	}
}

func testLifecycle(t *testing.T, e *Engine) {
	ctx := t.Context()
	c := sandbox(t, "life")
	pid, err := e.Create(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, e, "life", StatusCreated)
	if err := e.Start(ctx, "life"); err != nil {
		t.Fatal(err)
	}
	wantState(t, e, "life", StatusRunning)
	if s, _ := e.State(ctx, "life"); s.PID != pid || !alive(pid) {
		t.Errorf("pid is %d by Create and %d by State; alive: %v", pid, s.PID, alive(pid))
	}
	if ids, err := e.Containers(ctx); err != nil || !slices.Equal(ids, []string{"life"}) {
		t.Errorf("containers: %q, %v", ids, err)
	}
	if _, err := e.Create(ctx, c); !errors.Is(err, sbxerr.Exists) {
		t.Errorf("second create: %v, want %s", err, sbxerr.Exists)
	}
	wantState(t, e, "life", StatusRunning) // the second create must not have removed the first

	for range 2 { // running, then absent
		if err := e.Delete(ctx, "life"); err != nil {
			t.Fatal(err)
		}
		wantState(t, e, "life", StatusAbsent)
	}
	if alive(pid) {
		t.Errorf("process %d outlived its container", pid)
	}
}

//caisson:host the engine's own affair, the same on every kernel
func TestDelete(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	for name, harm := range map[string]func(t *testing.T, pid int){
		"created": nil,
		"running": func(t *testing.T, _ int) {},
		"killed":  func(t *testing.T, pid int) { kill(t, pid) },
		"shimless": func(t *testing.T, pid int) {
			kill(t, parentOf(t, pid))
		},
		"shimless and serverless": func(t *testing.T, pid int) {
			server := s.Status().PID
			kill(t, parentOf(t, pid))
			kill(t, server)
			await(t, "the server's restart", func() bool { p := s.Status().PID; return p != 0 && p != server })
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := "d" + strconv.Itoa(len(name))
			c := sandbox(t, id)
			pid, err := e.Create(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if harm != nil {
				if err := e.Start(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				harm(t, pid)
			}
			if err := e.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			wantState(t, e, id, StatusAbsent)
			await(t, "the end of the process", func() bool { return !alive(pid) })
			if left, _ := filepath.Glob(filepath.Join(e.cfg.RuncRoot, "*", id)); len(left) > 0 {
				t.Errorf("runc still knows %q", left)
			}
		})
	}
}

func TestCreateFails(t *testing.T) {
	e := connect(t, supervise(t))
	c := sandbox(t, "broken", "/no/such/program")
	c.Spec.Root.Path = "/no/such/root"
	if _, err := e.Create(t.Context(), c); !errors.Is(err, sbxerr.Engine) {
		t.Errorf("create: %v, want %s", err, sbxerr.Engine)
	}
	wantState(t, e, "broken", StatusAbsent)
}

// A sandbox does not notice that its server is killed, and calls made meanwhile
// succeed once it is back.
//
//caisson:host the engine's own affair, the same on every kernel
func TestServerKilled(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	pid := start(t, e, sandbox(t, "survivor"))
	for range 2 {
		kill(t, s.Status().PID)
		wantState(t, e, "survivor", StatusRunning)
	}
	if !alive(pid) {
		t.Error("the sandbox died with its server")
	}
	if got := s.Status(); got.Restarts < 2 || got.LastExit == "" {
		t.Errorf("status is %+v", got)
	}
	second := start(t, e, sandbox(t, "second"))
	if !alive(second) {
		t.Error("no sandbox after the restart")
	}
}

// Whatever moment the server is killed at, a create ends in a container that can
// be started, or in none.
//
//caisson:host the engine's own affair, the same on every kernel
func TestServerKilledDuringCreate(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	for i, moment := range []time.Duration{0, 10, 20, 40, 60} { // spread over what a create takes
		id := "c" + strconv.Itoa(i)
		c := sandbox(t, id)
		done := make(chan error, 1)
		go func() { _, err := e.Create(context.Background(), c); done <- err }()
		sleep(t.Context(), moment*time.Millisecond)
		kill(t, s.Status().PID)
		if err := <-done; err != nil {
			t.Logf("create %s: %v", id, err)
			wantState(t, e, id, StatusAbsent)
			continue
		}
		if err := e.Start(t.Context(), id); err != nil {
			t.Error(err)
		}
		wantState(t, e, id, StatusRunning)
		if err := e.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// A start that meets a dying server ends in a running container, or in one that it
// says is lost and that can be deleted; soon, in either case.
//
//caisson:host the engine's own affair, the same on every kernel
func TestServerKilledDuringStart(t *testing.T) {
	s := supervise(t)
	e := connect(t, s)
	for i := range 4 {
		id := "s" + strconv.Itoa(i)
		pid, err := e.Create(t.Context(), sandbox(t, id))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Start(context.Background(), id) }()
		sleep(t.Context(), time.Duration(2*i)*time.Millisecond)
		kill(t, s.Status().PID)
		if err := <-done; err == nil {
			wantState(t, e, id, StatusRunning)
		} else if !errors.Is(err, sbxerr.EngineDown) {
			t.Errorf("start %s: %v", id, err)
		}
		if err := e.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
		await(t, "the end of the process", func() bool { return !alive(pid) })
	}
}

// A daemon that lives for months must not collect descriptors or goroutines.
//
//caisson:host the engine's own affair, the same on every kernel
func TestNothingLeaks(t *testing.T) {
	bin := binDir(t)
	cycle := func() {
		s, err := Supervise(t.Context(), ServerConfig{Paths: scratch(t), BinDir: bin})
		if err != nil {
			t.Fatal(err)
		}
		e, err := openEngine(t.Context(), EngineConfig{Address: s.Address(), Namespace: "ctrdtest", Runc: filepath.Join(bin, "runc"), RuncRoot: s.cfg.RuncRoot()})
		if err != nil {
			t.Fatal(err)
		}
		start(t, e, sandbox(t, "leak"))
		if err := errors.Join(e.Delete(t.Context(), "leak"), e.Close()); err != nil {
			t.Error(err)
		}
		s.Stop()
	}
	cycle() // what is made once and kept
	fds, routines := descriptors(t), goruntime.NumGoroutine()
	for range 3 {
		cycle()
	}
	await(t, "the end of goroutines", func() bool { return goruntime.NumGoroutine() <= routines })
	if got := descriptors(t); got > fds {
		t.Errorf("%d descriptors became %d", fds, got)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func TestEngineConfigCheck(t *testing.T) {
	good := EngineConfig{Address: "/run/c.sock", Namespace: "caisson-0123abcd", Runc: "/bin/runc", RuncRoot: "/run/runc"}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	if err := (EngineConfig{Shim: "shim", Sockets: "s", Bundles: []string{"b"}}).check(); count(err) != 7 {
		t.Errorf("%v: want seven reasons", err)
	}
}

func TestEngineDown(t *testing.T) {
	binDir(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 1, errors.New("the caller gave up"))
	defer cancel()
	_, err := openEngine(ctx, EngineConfig{Address: "/run/no-such.sock", Namespace: "x", Runc: "/x", RuncRoot: "/x"})
	if err == nil || errors.Is(err, sbxerr.Unknown) {
		t.Errorf("connect: %v", err)
	}
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to kill: %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
