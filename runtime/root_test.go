package runtime

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/images/imagestest"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/tests/need"
)

// rootOptions are a daemon's in a directory on a disk: the kernel's tmpfs
// cannot map ids before Linux 6.3.
func rootOptions(t *testing.T) Options {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "caisson-runtime-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if mounts := mountsBelow(t, dir); len(mounts) > 0 {
			t.Errorf("mounts are left, and with them %q: %q", dir, mounts)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(dir, initproto.BinaryName)
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Options{
		Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), CgroupParent: "caisson-test", InitPath: program,
		IDs: idblock.Range{Base: 1879048192, Blocks: 2}, Settings: Settings{Profiles: plan.BuiltinProfiles(), Images: imageservice.Settings{Limits: image.DefaultLimits(), Registry: &registry.Client{}}},
		Timeouts: Timeouts{time.Minute, time.Minute, time.Minute},
	}
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, dir+"/") {
			found = append(found, strings.TrimPrefix(point, dir))
		}
	}
	return found
}

// newRooted is a manager that mounts and makes namespaces, with a fake engine:
// only what needs a real PID 1 or a real cgroup is left out.
func newRooted(t *testing.T, o Options, e *fakeEngine) *fixture {
	t.Helper()
	layer := filepath.Join(o.Root, "layer")
	if err := os.MkdirAll(layer, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(layer, "marker"), []byte("of the image"), 0o644); err != nil {
		t.Fatal(err)
	}
	img := images.Stored{Image: images.Image{Name: "base"}, ChainID: "chain-base", Layers: []string{layer}}
	f := &fixture{engine: e, images: &imagestest.Store{Images: []images.Stored{img}}}
	var err error
	if f.Manager, err = New(e, f.images, slog.New(slog.DiscardHandler), o); err != nil {
		t.Fatal(err)
	}
	unified := filepath.Join(o.Root, "cgroup")
	f.groups = fakeHost(unified)
	if e.containers == nil { // not that of an earlier daemon
		e.paths, e.cgroups, e.containers = f.paths, filepath.Join(unified, "caisson-test"), map[string]*fakeContainer{}
	}
	if err := os.MkdirAll(e.cgroups, 0o755); err != nil {
		t.Fatal(err)
	}
	f.replace(stage{name: "init", remove: f.removeInit, create: func(_ context.Context, s *sandbox) error {
		dir := f.paths.init(s.plan.ID)
		err := makeDir(dir, 0o711)
		if err == nil {
			s.listener, err = pid1.Listen(dir, os.Getuid(), os.Getgid()) // who the fake PID 1 is
		}
		return err
	}})
	f.replace(stage{name: "limits", create: func(context.Context, *sandbox) error { return nil }})
	f.replace(stage{name: "posture", create: func(context.Context, *sandbox) error { return nil }})
	return f
}

func TestMountsComeAndGo(t *testing.T) {
	need.Root(t, "it mounts, and makes namespaces")
	o := rootOptions(t)
	dir := filepath.Dir(o.Root)
	workspace := filepath.Join(dir, "project")
	if err := os.Mkdir(workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	f := newRooted(t, o, &fakeEngine{})
	stageMount := []string{"/state/sandboxes"}
	if got := mountsBelow(t, dir); !slices.Equal(got, stageMount) {
		t.Errorf("mounts of an idle daemon: %q", got)
	}
	_, err := f.Run(callerContext(t), plan.Request{Create: plan.CreateRequest{Workspace: &plan.WorkspaceRequest{Dir: workspace, Mode: "ro"}}, Exec: plan.ExecRequest{Args: []string{"await:10", "exit:0"}}}, IO{Started: func(i Info, _ ExecInfo) {
		defer f.engine.poke(t, i.ID)
		box := "/state/sandboxes/" + i.ID
		want := []string{box + "/netns", box + "/own", box + "/rootfs", box + "/userns", box + "/workspace", "/state/sandboxes"}
		got := mountsBelow(t, dir)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("mounts of a sandbox: %q, want %q", got, want)
		}
		if data, err := os.ReadFile(filepath.Join(f.paths.rootfs(i.ID), "marker")); err != nil || string(data) != "of the image" {
			t.Errorf("the image shows %q, %v", data, err)
		}
		if hosts, err := os.ReadFile(filepath.Join(f.paths.rootfs(i.ID), "etc/hostname")); err != nil || string(hosts) != i.ID+"\n" {
			t.Errorf("the private layer shows %q, %v", hosts, err)
		}
		for _, path := range []string{f.paths.rootfs(i.ID), f.paths.workspace(i.ID)} {
			if err := os.WriteFile(filepath.Join(path, "new"), nil, 0o644); err == nil {
				t.Errorf("%s can be written", path)
			}
		}
		record, err := os.ReadFile(f.paths.record(i.ID))
		if err != nil || !strings.Contains(string(record), `"host_id_base":1879048192`) {
			t.Errorf("record %s, %v", record, err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.drain(callerContext(t)); err != nil {
		t.Error(err)
	}
	f.wantNothingLeft(t)
	if got := mountsBelow(t, dir); !slices.Equal(got, stageMount) {
		t.Errorf("mounts after the sandbox: %q", got)
	}
	if err := f.Close(callerContext(t)); err != nil {
		t.Error(err)
	}
}

// TestMountFailsHalfWay makes the stages that mount fail on their own.
func TestMountFailsHalfWay(t *testing.T) {
	need.Root(t, "it mounts, and makes namespaces")
	o := rootOptions(t)
	f := newRooted(t, o, &fakeEngine{})
	_, err := f.Run(callerContext(t), plan.Request{Create: plan.CreateRequest{Workspace: &plan.WorkspaceRequest{Dir: "/var/tmp/no-such-directory"}}, Exec: plan.ExecRequest{Args: []string{"exit:0"}}}, IO{})
	errtest.Want(t, err, sbxerr.Workspace, "create mounts of sandbox", "does not exist")
	f.images.Images[0].Layers = []string{"/var/tmp/no-such-layer"}
	_, err = f.Run(callerContext(t), request("exit:0"), IO{})
	errtest.Want(t, err, sbxerr.ImageUser, "no-such-layer")
	f.images.Images[0].Layers = nil
	_, err = f.Run(callerContext(t), request("exit:0"), IO{})
	errtest.Want(t, err, sbxerr.ImageContent, "create rootfs of sandbox", "has 0 layers")
	if got := mountsBelow(t, filepath.Dir(o.Root)); len(got) != 1 {
		t.Errorf("mounts %q", got)
	}
	if err := f.Close(callerContext(t)); err != nil {
		t.Error(err)
	}
}

// TestNextDaemonRemovesWhatAKilledOneLeft: a second manager on the same
// directories knows of nothing but what it finds there.
func TestNextDaemonRemovesWhatAKilledOneLeft(t *testing.T) {
	need.Root(t, "it mounts, and makes namespaces")
	o := rootOptions(t)
	engine := &fakeEngine{}
	killed := newRooted(t, o, engine)
	var dead atomic.Bool
	for i, st := range killed.Manager.stages {
		killed.Manager.stages[i].remove = func(ctx context.Context, id string) error {
			if dead.Load() || st.remove == nil {
				return nil
			}
			return st.remove(ctx, id)
		}
	}
	info := killed.start(t, request("hang"))
	dead.Store(true)

	next := newRooted(t, o, engine)
	left, err := next.Cleanup(callerContext(t), false)
	if err != nil || len(left) != 1 || left[0].ID != info.ID || !left[0].Removed {
		t.Errorf("cleanup: %+v, %v", left, err)
	}
	next.wantNothingLeft(t)
	if got := mountsBelow(t, filepath.Dir(o.Root)); len(got) != 1 {
		t.Errorf("mounts %q", got)
	}
	if err := errors.Join(killed.drain(callerContext(t)), next.Close(callerContext(t))); err != nil {
		t.Error(err)
	}
	for _, ns := range killed.userns { // the kernel does that for a killed process
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNewThatFailsMountsNothing(t *testing.T) {
	need.Root(t, "it mounts, and makes namespaces")
	o := rootOptions(t)
	o.InitPath += ".absent"
	_, err := New(&fakeEngine{}, &imagestest.Store{}, slog.New(slog.DiscardHandler), o)
	errtest.Want(t, err, sbxerr.Binary)
	if got := mountsBelow(t, filepath.Dir(o.Root)); len(got) > 0 {
		t.Errorf("mounts %q", got)
	}
}

func TestNewRefusesPlacesItCannotUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(nil, nil, nil, Options{Root: file, State: filepath.Join(file, "state")})
	errtest.Want(t, err, sbxerr.StateDir)
}

// TestInitIsACopy: PID 1's program belongs to one sandbox only (CVE-2022-0847).
func TestInitIsACopy(t *testing.T) {
	f := newFixture(t)
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.init, err = pid1.ReadProgram(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.init.Close() })
	base := uint32(os.Getuid()) - 1000 // so that the sandbox's user is this process's own
	s := f.newSandbox(&plan.Sandbox{ID: idA1, User: plan.User{UID: 1000, GID: uint32(os.Getgid()) - base}}, record{ID: idA1})
	s.block = idblock.Block{Base: base}
	if err := f.createClaim(callerContext(t), s); err != nil {
		t.Fatal(err)
	}
	if err := f.createInit(callerContext(t), s); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(f.paths.init(idA1), initproto.BinaryName)
	data, err := os.ReadFile(program)
	if st, statErr := os.Stat(program); err != nil || statErr != nil || string(data) != "program" || st.Mode().Perm() != 0o555 {
		t.Errorf("program %q, %v, %v", data, st, errors.Join(err, statErr))
	}
	if st, err := os.Stat(filepath.Join(f.paths.init(idA1), initproto.SocketName)); err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket %v, %v", st, err)
	}
	if err := f.createInit(callerContext(t), s); sbxerr.Of(err) != sbxerr.StateDir {
		t.Errorf("a second time: %v", err)
	}
	for range 2 { // absent is success
		if err := errors.Join(s.closeHandles(), f.teardown(callerContext(t), idA1, 0)); err != nil {
			t.Error(err)
		}
	}
	f.wantNothingLeft(t)
}
