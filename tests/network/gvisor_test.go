package network

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/tests/need"
)

// A sandbox's network is bound by its namespace, whichever runtime has joined it. gVisor
// brings a kernel of its own and knows nothing of our system call filter; what it runs is
// told what runc's commands are told.
func TestGVisor(t *testing.T) {
	need.Env(t, "CAISSON_RUNSC", "the path of gVisor's runsc")
	reaches(t, "web.example:80", "web.example:443", "db.example:5432")
	s := create(t, "--allow", "web.example", "--allow", "db.example:5432")
	inside, unbound := startGuest(t, s, s.netns()), startGuest(t, s, host.path())
	unbound.source = host.source
	if said := inside.run("/bin/dmesg"); !strings.Contains(said, "Starting gVisor") {
		t.Fatalf("this is not gVisor: %q", said)
	}
	t.Run("the control: gVisor in the host's namespace", func(t *testing.T) {
		check(t, unbound, []attempt{
			{"another name", []string{"query", resolver + ":53", "other.example", "A"}, "A Success 1"},
			{"a port that no rule names", []string{"echo", public + ":5432"}, "echo ping"},
			{"a literal address", []string{"http", "http://" + public + "/"}, "200 I am " + public},
			{"IPv6", []string{"http", "http://[" + publicV6 + "]/"}, "200 I am " + publicV6},
			{"a private address", []string{"http", "http://" + private + "/"}, "200 I am " + private},
			{"the metadata service", []string{"http", "http://" + metadata + "/"}, "200 I am " + metadata},
			{"the host's loopback", []string{"http", "http://127.0.0.1/"}, "200 I am 127.0.0.1"},
			{"the host's resolver", []string{"query", resolver + ":53", "web.example", "A"}, "A Success 1"},
		})
	})
	address := s.try("names", "web.example") // one that it has in this sandbox alone
	if !strings.HasPrefix(address, "198.1") {
		t.Fatalf("web.example is %q", address)
	}
	for runtime, at := range map[string]place{"runc": s, "gVisor": inside} {
		t.Run(runtime, func(t *testing.T) {
			check(t, at, []attempt{
				{"an allowed name", []string{"names", "web.example"}, address},
				{"HTTP", []string{"http", "http://web.example/"}, "200 I am " + public + ", you asked for web.example"},
				{"TLS", []string{"tls", "web.example:443", "web.example"}, "I am " + public},
				{"any protocol on another port", []string{"echo", "db.example:5432"}, "echo ping"},
				{"another name", []string{"query", "127.0.0.1:53", "other.example", "A"}, "A NameError 0"},
				{"a port that no rule names", []string{"echo", "web.example:5432"}, "reset"},
				{"a literal address", []string{"http", "http://" + public + "/"}, "refused"},
				{"IPv6", []string{"http", "http://[" + publicV6 + "]/"}, "refused"},
				{"a private address", []string{"http", "http://" + private + "/"}, "refused"},
				{"the metadata service", []string{"http", "http://" + metadata + "/"}, "refused"},
				{"the host's loopback", []string{"http", "http://127.0.0.1/"}, "refused"},
				{"the host's resolver", []string{"query", resolver + ":53", "web.example", "A"}, "refused"},
			})
		})
	}
	daemon.Run(t, "update", "--allow", "db.example:5432", s.id)
	check(t, inside, []attempt{
		{"a name that is no longer allowed", []string{"query", "127.0.0.1:53", "web.example", "A"}, "A NameError 0"},
		{"the address that it had", []string{"http", "http://" + address + "/", "web.example"}, "SBX-701"},
		{"what is still allowed", []string{"echo", "db.example:5432"}, "echo ping"},
	})
}

// guest is a container of gVisor.
type guest struct {
	dir    string
	source string // as the client wants it
}

// startGuest starts one that goes with t, with the files of s, in a network namespace.
func startGuest(t *testing.T, s sandbox, netns string) guest {
	t.Helper()
	dir, err := os.MkdirTemp(s.of.Root, "guest-") // the last check of the suite finds a process that names it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	bundle, err := json.Marshal(guestSpec(t, s, netns))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	g := guest{dir: dir}
	g.start(t)
	return g
}

// guestSpec is a container that says when it is there, and ends by itself if nobody ends
// it. It has the files and the user of the commands of s.
func guestSpec(t *testing.T, s sandbox, netns string) specs.Spec {
	t.Helper()
	return specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args: []string{"/bin/sh", "-c", "echo ready; exec sleep 100"}, Cwd: "/",
			User: specs.User{UID: 1000, GID: 1000}, NoNewPrivileges: true,
		},
		Root: &specs.Root{Path: filepath.Join(s.of.State, "sandboxes", s.id, "rootfs"), Readonly: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/workspace", Type: "bind", Source: clientDir(t), Options: []string{"bind", "ro"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			{Type: specs.NetworkNamespace, Path: netns},
		}},
	}
}

func (g guest) start(t *testing.T) {
	t.Helper()
	cmd := g.runsc("run", "--bundle", g.dir, "guest")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := g.runsc("delete", "--force", "guest").CombinedOutput(); err != nil {
			t.Errorf("delete the guest: %v\n%s", err, out)
		}
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the guest says %q", lines.Text())
	}
}

// runsc prepares a call. gVisor's own network stack has a loopback device of its own, on
// which no gateway listens; with the host's stack, sockets are those of the namespace.
func (g guest) runsc(args ...string) *exec.Cmd {
	return exec.Command(os.Getenv("CAISSON_RUNSC"), append([]string{"--root", filepath.Join(g.dir, "state"), "--network=host", "--ignore-cgroups"}, args...)...)
}

// run runs a command in g.
func (g guest) run(command ...string) string {
	out, _ := g.runsc(append([]string{"exec", "--user", "1000:1000", "guest"}, command...)...).CombinedOutput() // what it says is how it went
	return strings.TrimSpace(string(out))
}

// try runs the client in g.
func (g guest) try(args ...string) string {
	return g.run(append([]string{"/workspace/client", "-source", g.source}, args...)...)
}
