package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/images/imagestest"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/registry"
)

// soon bounds what must happen, and is never waited for in a test that passes.
const soon = 20 * time.Second

// fixture is a Manager on an engine in memory, whose containers are child
// processes that play PID 1. What needs root is left out of its stages; all
// else is as in a daemon.
type fixture struct {
	*Manager
	engine *fakeEngine
	images *imagestest.Store
	dir    string
}

// newTestManager is a Manager without a host, an engine or images, made as New makes one.
func newTestManager(with ...func(*Options)) *Manager {
	o := Options{Settings: Settings{Profiles: plan.BuiltinProfiles()}}
	for _, change := range with {
		change(&o)
	}
	return assemble(nil, &imagestest.Store{}, slog.New(slog.DiscardHandler), o)
}

// newFixture makes a fixture. with changes the options that it is made with.
func newFixture(t testing.TB, with ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), images: &imagestest.Store{Images: []images.Stored{baseImage(t)}}}
	p := paths{root: filepath.Join(f.dir, "root"), state: filepath.Join(f.dir, "state")}
	unified := filepath.Join(f.dir, "cgroup")
	for _, dir := range []string{p.sandboxes(), p.outputs(), p.spool(), p.uses(), p.volumes(), p.disks(), filepath.Join(unified, "caisson-test")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	blocks, err := idblock.NewAllocator(p.ids(), idblock.Range{Base: 1879048192, Blocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	f.engine = &fakeEngine{paths: p, cgroups: filepath.Join(unified, "caisson-test"), containers: map[string]*fakeContainer{}}
	o := Options{
		Root: p.root, State: p.state, CgroupParent: "caisson-test", Settings: Settings{Profiles: plan.BuiltinProfiles(), Images: imageservice.Settings{Limits: image.DefaultLimits(), Registry: &registry.Client{}}},
		StopGrace: time.Hour, AttachGrace: time.Hour, Timeouts: Timeouts{time.Minute, time.Minute, time.Minute}, KeptExecs: 10, KeptOutput: 1 << 20, PerShim: 1,
	}
	for _, change := range with {
		change(&o)
	}
	f.Manager = assemble(f.engine, f.images, slog.New(slog.DiscardHandler), o)
	f.blocks, f.groups, f.boot = blocks, fakeHost(unified), "boot"
	f.withoutRoot()
	t.Cleanup(func() { f.end(t) })
	return f
}

func baseImage(t testing.TB) images.Stored {
	return images.Stored{Image: images.Image{Name: "base", Digest: "sha256:1", CreatedAt: time.Unix(1, 0)}, ChainID: "chain-base", Layers: []string{t.TempDir()}}
}

// fakeHost is a cgroup2 hierarchy of plain files.
func fakeHost(unified string) cgroups.Host {
	return cgroups.Host{
		Mode: cgroups.V2, Unified: unified, SwapLimit: finding.Yes,
		Controllers: map[string]finding.Answer{"memory": finding.Yes, "cpu": finding.Yes, "pids": finding.Yes, "devices": finding.Yes},
	}
}

// replace puts other functions in the place of a stage's.
func (f *fixture) replace(s stage) {
	i := slices.IndexFunc(f.Manager.stages, func(have stage) bool { return have.name == s.name })
	have := f.Manager.stages[i]
	s.guard, s.adopt, s.late, s.update = have.guard, have.adopt, have.late, have.update // what a test does not replace stays
	f.Manager.stages[i] = s
}

// withoutRoot replaces what mounts, makes namespaces or changes owners.
func (f *fixture) withoutRoot() {
	f.replace(stage{name: "ids", remove: f.removeIDs, create: func(_ context.Context, s *sandbox) error {
		block, err := f.blocks.Claim(s.id)
		s.update(func() { s.block = block })
		return err
	}})
	f.replace(f.directory("rootfs", f.paths.rootfs))
	f.replace(stage{name: "own", create: f.makeOwn, remove: func(_ context.Context, id string) error {
		return removeFiles(f.paths.ends(id), f.paths.own(id))
	}})
	f.replace(f.directory("mounts", f.paths.workspace))
	f.replace(f.directory("userns", f.paths.userns))
	f.replace(f.directory("netns", f.paths.netns))
	f.replace(stage{name: "init", remove: f.removeInit, create: func(_ context.Context, s *sandbox) error {
		dir := f.paths.init(s.id)
		err := makeDir(dir, 0o711)
		if err == nil {
			s.listener, err = pid1.Listen(dir, os.Getuid(), os.Getgid())
		}
		return err
	}})
	f.replace(stage{name: "limits", create: func(context.Context, *sandbox) error { return nil }})
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error { return nil }})
}

func (f *fixture) makeOwn(_ context.Context, s *sandbox) error {
	if err := makeDir(f.paths.own(s.id), 0o700); err != nil {
		return err
	}
	return os.WriteFile(f.paths.ends(s.id), nil, 0o600)
}

// directory is a stage that only makes its directory.
func (f *fixture) directory(name string, path func(id string) string) stage {
	return stage{
		name:   name,
		create: func(_ context.Context, s *sandbox) error { return makeDir(path(s.id), 0o711) },
		remove: func(_ context.Context, id string) error { return removeFiles(path(id)) },
	}
}

// end drains the manager and looks for what it left.
func (f *fixture) end(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := f.drain(ctx); err != nil {
		t.Errorf("drain: %v", err)
	}
	f.wantNothingLeft(t)
}

// wantNothingLeft looks at the places where sandboxes leave traces.
func (f *fixture) wantNothingLeft(t testing.TB) {
	t.Helper()
	for _, dir := range []string{f.paths.sandboxes(), f.paths.outputs(), f.paths.disks(), f.paths.ids(), f.engine.cgroups} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, %v", dir, entries, err)
		}
	}
	if ids, _ := f.engine.Containers(callerContext(t)); len(ids) > 0 {
		t.Errorf("containers are left: %v", ids)
	}
}

// request runs a script of the fake PID 1.
func request(steps ...string) plan.Request { return plan.Request{Exec: plan.ExecRequest{Args: steps}} }

// fakeEngine makes child processes instead of containers, and the cgroups that
// an OCI runtime would make.
type fakeEngine struct {
	paths   paths
	cgroups string
	mode    string // of the children
	fail    map[string]error

	deleting   sync.Mutex // one at a time, by whatever daemon
	mu         sync.Mutex
	containers map[string]*fakeContainer
}

type fakeContainer struct {
	Container
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// cgroupFiles is what a cgroup2 shows of a group in which nothing happened.
var cgroupFiles = map[string]string{
	"cpu.stat": "usage_usec 1500\nnr_throttled 3\n", "memory.current": "0\n", "memory.peak": "4096\n", "io.stat": "8:0 rbytes=10 wbytes=20\n", "pids.current": "1\n", "pids.max": "256\n",
	"memory.events": "max 0\noom 0\noom_kill 0\n", "pids.events": "max 0\n", "cgroup.procs": "",
}

func (e *fakeEngine) Create(_ context.Context, c Container) (int, error) {
	group := filepath.Join(e.cgroups, c.ID)
	if err := os.Mkdir(group, 0o755); err != nil {
		return 0, err
	}
	for name, content := range cgroupFiles {
		if err := os.WriteFile(filepath.Join(group, name), []byte(content), 0o644); err != nil {
			return 0, err
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{fakeInitEnv + "=" + e.paths.init(c.ID), fakeInitMode + "=" + e.mode}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers[c.ID] = &fakeContainer{Container: c, cmd: cmd, stdin: stdin}
	return cmd.Process.Pid, e.fail["create"]
}

func (e *fakeEngine) get(id string) *fakeContainer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.containers[id]
}

func (e *fakeEngine) Start(_ context.Context, id string) error {
	if err := e.fail["start"]; err != nil {
		return err
	}
	_, err := io.WriteString(e.get(id).stdin, "\n")
	return err
}

// poke lets a script go on that awaits it. One that does not may have ended, and
// its container may be gone.
func (e *fakeEngine) poke(t testing.TB, id string) {
	t.Helper()
	c := e.get(id)
	if c == nil {
		return
	}
	_, err := io.WriteString(c.stdin, "\n")
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func (e *fakeEngine) Delete(_ context.Context, id string) error {
	if err := e.fail["delete"]; err != nil {
		return err
	}
	e.deleting.Lock()
	defer e.deleting.Unlock()
	if c := e.get(id); c != nil {
		_ = c.cmd.Process.Kill() // may have ended
		_ = c.cmd.Wait()         // killed
	}
	entries, _ := os.ReadDir(filepath.Join(e.cgroups, id)) // the kernel's files go with the directory
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(e.cgroups, id, entry.Name())); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.containers, id)
	return nil
}

func (e *fakeEngine) Containers(context.Context) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := []string{}
	for id := range e.containers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, e.fail["containers"]
}

// count sets a counter of a cgroup, as the kernel would.
func (e *fakeEngine) count(t testing.TB, id, file, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.cgroups, id, file), []byte(content), 0o644); err != nil {
		t.Error(err)
	}
}

// within waits for c, which must be closed or filled soon.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatalf("%s does not come", what)
		panic("unreachable")
	}
}

var errInjected = errors.New("injected")

// callerContext is the context of a test, in which root calls.
func callerContext(t testing.TB) context.Context {
	return peer.NewContext(t.Context(), peer.User(0, 0, nil, 0))
}

// rootGrant is what root may do.
func rootGrant(t testing.TB) peer.Grant {
	t.Helper()
	g, err := peer.Policy{}.Grant(peer.User(0, 0, nil, 0))
	if err != nil {
		t.Fatal(err)
	}
	return g
}
