package shimcall

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// said is what containerd says; see command in core/runtime/v2.
func said(action string) []string {
	return []string{"-namespace", "ns", "-address", "/run/c.sock", "-publish-binary", "/bin/containerd", "-id", "box", action}
}

func TestParse(t *testing.T) {
	want := Call{Action: Start, Namespace: "ns", ID: "box", Address: "/run/c.sock"}
	if c, ok := Parse(said(Start)); !ok || c != want {
		t.Errorf("start: %+v, %v", c, ok)
	}
	want.Action = Delete
	withBundle := slices.Concat(said("")[:8], []string{"-bundle", "/run/b", Delete})
	if c, ok := Parse(withBundle); !ok || c != want {
		t.Errorf("delete: %+v, %v", c, ok)
	}
	for _, args := range [][]string{
		nil, {"-v"}, {"-info"}, said(Start)[:8], said(Start)[2:],
		slices.Concat([]string{"-debug"}, said(Start)), // its server has one more socket
		slices.Concat(said(Start), []string{"more"}),
	} {
		if c, ok := Parse(args); ok {
			t.Errorf("%q is a call: %+v", args, c)
		}
	}
	if _, ok := (Call{"serve", "ns", "box", "/run/c.sock"}).Answer(Place{Bundle: t.TempDir(), Sockets: t.TempDir()}); ok {
		t.Error("an unknown action has an answer")
	}
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spec is that of a container in a group, as far as it matters.
func spec(group string) map[string]any {
	return map[string]any{
		"process":     map[string]any{"env": []string{`X="io.containerd.runc.v2.group":"evil"`}},
		"annotations": map[string]string{GroupAnnotation: group},
	}
}

// short makes a directory whose name leaves room for a socket's.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestStart(t *testing.T) {
	c, ok := Parse(said(Start))
	if !ok {
		t.Fatal("not a call")
	}
	sockets, bundle := short(t), t.TempDir()
	refused := func(what string) {
		t.Helper()
		if answer, ok := c.Answer(Place{Bundle: bundle, Sockets: sockets, Program: "/no/program"}); ok {
			t.Errorf("%s: %q", what, answer)
		}
	}
	refused("without a spec")
	write(t, filepath.Join(bundle, "config.json"), spec("all"))
	refused("nobody listens")

	path := filepath.Join(sockets, SocketName("/run/c.sock", "ns", "all"))
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	answer, ok := c.Answer(Place{Bundle: bundle, Sockets: sockets, Program: "/no/program"})
	if !ok {
		t.Fatal("the shim of the group is not found")
	}
	var r bootstrap.BootstrapResult
	if err := proto.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if want := (&bootstrap.BootstrapResult{Version: 3, Protocol: "ttrpc", Address: "unix://" + path}); !proto.Equal(&r, want) {
		t.Errorf("answer %v, want %v", &r, want)
	}
	if _, ok := c.Answer(Place{Bundle: bundle}); ok {
		t.Error("an answer without a directory of sockets")
	}
	write(t, filepath.Join(bundle, "config.json"), spec(""))
	refused("without a group, of which no shim runs")
	write(t, filepath.Join(bundle, "config.json"), spec("other"))
	refused("of another group")
	write(t, filepath.Join(bundle, "config.json"), spec("all"))
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	refused("of a shim that was killed, with no program to start another")
}

// A shim that is busy is not taken for one that was killed, whose socket goes.
func TestListensWhileBusy(t *testing.T) {
	path := filepath.Join(short(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // it accepts nobody
		if !listens(path) {
			t.Errorf("call %d: it is taken for dead", i)
		}
		hold, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(hold)
		if err := unix.Connect(hold, &unix.SockaddrUnix{Name: path}); i == 2 && !errors.Is(err, unix.EAGAIN) {
			t.Errorf("nobody has to wait: %v", err)
		}
	}
}

func TestDelete(t *testing.T) {
	c, ok := Parse(said(Delete))
	if !ok {
		t.Fatal("not a call")
	}
	at := time.Date(2026, 11, 22, 5, 0, 0, 123456789, time.FixedZone("", 3600))
	root := t.TempDir()
	// lay makes what the shim leaves in order.
	lay := func(t *testing.T) (bundle string) {
		bundle = t.TempDir()
		write(t, filepath.Join(bundle, "options.json"), map[string]string{"binary_name": "/bin/runc", "root": root})
		write(t, filepath.Join(bundle, "exit.json"), runc.Exit{Timestamp: at, Pid: 4711, Status: 137})
		return bundle
	}
	bundle := lay(t)
	answer, ok := c.Answer(Place{Bundle: bundle})
	if !ok {
		t.Fatal("nothing is left, and yet there is no answer")
	}
	var r task.DeleteResponse
	if err := proto.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if r.Pid != 4711 || r.ExitStatus != 137 || !r.ExitedAt.AsTime().Equal(at) {
		t.Errorf("answer %v", &r)
	}
	for name, spoil := range map[string]func(bundle string) error{
		"no options":          func(b string) error { return os.Remove(filepath.Join(b, "options.json")) },
		"options without it":  func(b string) error { return os.WriteFile(filepath.Join(b, "options.json"), []byte("{}"), 0o600) },
		"no end noted":        func(b string) error { return os.Remove(filepath.Join(b, "exit.json")) },
		"half an end noted":   func(b string) error { return os.WriteFile(filepath.Join(b, "exit.json"), []byte(`{"Pid":1}`), 0o600) },
		"the runtime's state": func(string) error { return os.MkdirAll(filepath.Join(root, "ns", "box"), 0o700) },
		"a root file system":  func(b string) error { return os.MkdirAll(filepath.Join(b, "rootfs", "etc"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			bundle := lay(t)
			if err := spoil(bundle); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(filepath.Join(root, "ns"))
			if answer, ok := c.Answer(Place{Bundle: bundle}); ok {
				t.Errorf("answer %q", answer)
			}
		})
	}
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Answer(Place{Bundle: bundle}); !ok {
		t.Error("no answer where the place of the root file system is empty")
	}
	if plainAndEmpty("/proc") || plainAndEmpty("/etc") {
		t.Error("a mount point or what holds something is plain and empty")
	}
}

// The shim finds its own socket by containerd's code.
func TestSocketName(t *testing.T) {
	want, err := shim.CreateSocketAddress(namespaces.WithNamespace(t.Context(), "ns"), "/run/s", "/run/c.sock", "all", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := "unix:///run/s/" + SocketName("/run/c.sock", "ns", "all"); got != want {
		t.Errorf("socket %q, want %q", got, want)
	}
}
