package ctrd

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/tests/need"
)

var update = flag.Bool("update", false, "write golden files again")

// testCgroup is the parent of all cgroups of this process's tests.
var testCgroup = "/ctrdtest" + strconv.Itoa(os.Getpid())

const hostBase = 1879048192 // of the mapped ids: no user of the host has them

// binDir returns where the engine's binaries are, for tests that run them as root.
func binDir(t testing.TB) string {
	t.Helper()
	need.Root(t, "it runs the engine")
	return need.Bin(t)
}

// scratch returns directories of a daemon of the test's own, short enough for
// sockets, and fails the test if anything of them is left in the end.
func scratch(t testing.TB) Paths {
	t.Helper()
	need.Root(t, "it runs the engine")
	state, err := os.MkdirTemp("/run", "ctrd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(state, 0o711); err != nil {
		t.Fatal(err)
	}
	p := Paths{Root: t.TempDir(), State: state}
	t.Cleanup(func() {
		if err := removeDeadSockets(p.ShimSockets()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err) // sockets of killed shims go with the next start
		}
		left := slices.Concat(processesOf(state), mountsBelow(t, p.Root, p.State), cgroups(), bundles(p))
		for _, l := range left {
			t.Errorf("left behind: %s", l)
		}
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	return p
}

// processesOf lists the processes with path among their arguments, a shim's socket
// for instance. Ending shims get a moment.
func processesOf(path string) []string {
	var found []string
	for range 50 {
		found = nil
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == os.Getpid() {
				continue
			}
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if bytes.Contains(args, []byte(path)) {
				found = append(found, fmt.Sprintf("process %d: %q", pid, args))
			}
		}
		if len(found) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond) // an ending process says nothing that could be waited for
	}
	return found
}

// cgroups lists those that containers left below testCgroup, which it removes, on
// cgroup v1 and v2.
func cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		left, _ := filepath.Glob(pattern + testCgroup + "/*/cgroup.procs")
		found = append(found, left...)
		parents, _ := filepath.Glob(pattern + testCgroup)
		for _, p := range parents {
			os.Remove(p)
		}
	}
	return found
}

// bundles lists what containerd and runc keep of containers.
func bundles(p Paths) []string {
	var found []string
	for _, pattern := range []string{"/containerd/io.containerd.runtime.v2.task/*/*", "/runc/*/*", "/s/*"} {
		for _, dir := range []string{p.Root, p.State} {
			left, _ := filepath.Glob(dir + pattern)
			found = append(found, left...)
		}
	}
	return found
}

func mountsBelow(t testing.TB, dirs ...string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		for _, d := range dirs {
			if strings.Contains(line, " "+d) {
				found = append(found, "mount: "+line)
			}
		}
	}
	return found
}

// supervise starts a private containerd for the test.
func supervise(t testing.TB) *Supervisor {
	t.Helper()
	cfg := ServerConfig{Paths: scratch(t), BinDir: binDir(t)}
	s, err := Supervise(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("containerd said:\n%s", s.out.Tail())
		}
	})
	return s
}

func connect(t testing.TB, s *Supervisor) *Engine {
	t.Helper()
	return connectTo(t, EngineConfig{
		Address:   s.Address(),
		Namespace: "ctrdtest",
		Shim:      filepath.Join(s.cfg.BinDir, ShimProgram),
		Runc:      filepath.Join(s.cfg.BinDir, "runc"),
		RuncRoot:  s.cfg.RuncRoot(),
		Sockets:   s.cfg.ShimSockets(),
		Bundles:   s.cfg.Bundles(),
	})
}

func openEngine(ctx context.Context, cfg EngineConfig) (*Engine, error) {
	e, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := e.Open(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func connectTo(t testing.TB, cfg EngineConfig) *Engine {
	t.Helper()
	e, err := openEngine(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ids, err := e.Containers(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if err := e.Delete(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// server17 starts the containerd of CAISSON_CONTAINERD17_DIR as a host would, with
// a configuration that is not ours, and returns its socket and its directory.
func server17(t testing.TB) (address, dir string) {
	t.Helper()
	binDir(t)
	dir = need.Env(t, "CAISSON_CONTAINERD17_DIR", "the directory of a containerd 1.7")
	p := scratch(t)
	config := filepath.Join(p.State, "config.toml")
	address = filepath.Join(p.State, "c.sock")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\nimports = []\n[grpc]\naddress = %q\n", p.Root, p.State+"/state", address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(dir, "containerd"), "--config", config)
	cmd.Env = []string{"PATH=" + dir}
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait() // ended by our signal: no error of interest
		if t.Failed() {
			t.Logf("containerd said:\n%s", out.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := awaitServing(ctx, address); err != nil {
		t.Fatalf("%v; it said: %s", err, out.String())
	}
	return address, dir
}

// sandbox returns a container that sleeps, with a user namespace of its own and
// nothing of the host but busybox.
func sandbox(t testing.TB, id string, args ...string) runtime.Container {
	t.Helper()
	root := filepath.Join(t.TempDir(), "rootfs")
	for dir := root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil { // root inside is nobody out here
			t.Fatal(err)
		}
	}
	for _, d := range []string{"bin", "proc", "dev"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	return runtime.Container{ID: id, Spec: sleepSpec(t, root, id, args), Labels: map[string]string{"caisson.session": "s1"}}
}

func sleepSpec(t testing.TB, root, id string, args []string) *specs.Spec {
	if args == nil {
		args = []string{"/bin/busybox", "sleep", "1000"}
	}
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: hostBase, Size: 65536}}
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{}, NoNewPrivileges: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: testCgroup + "/" + id,
			UIDMappings: ids, GIDMappings: ids,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}
}

// start makes and starts c.
func start(t testing.TB, e *Engine, c runtime.Container) (pid int) {
	t.Helper()
	pid, err := e.Create(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	return pid
}

func wantState(t testing.TB, e *Engine, id string, want Status) {
	t.Helper()
	s, err := e.State(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != want {
		t.Fatalf("state of %s is %+v, want %s", id, s, want)
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// await fails the test unless ok becomes true soon.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 200 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond) // what is awaited belongs to other processes
	}
	t.Fatalf("waited in vain: %s", what)
}

func listen(t testing.TB, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

func parentOf(t testing.TB, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// namespaced is the context that call gives to its function.
func namespaced(t testing.TB, e *Engine) context.Context {
	t.Helper()
	return namespaces.WithNamespace(t.Context(), e.cfg.Namespace)
}

// State asks for the state of id. An absent container is no error.
func (e *Engine) State(ctx context.Context, id string) (ContainerState, error) {
	var s ContainerState
	err := e.call(ctx, "ctrd.state", "read state of container", id, func(ctx context.Context) error {
		var err error
		s, err = e.state(ctx, id)
		return err
	})
	return s, err
}
