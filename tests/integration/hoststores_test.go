package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// hostStore is an image store of the host, with its own program.
type hostStore struct {
	transport string
	load      []string // takes an archive on standard input
	env       []string
}

// TestHostStores: what image save writes, the programs of a host's stores load, and image
// import takes it from there by name. A name that is not there imports nothing.
func TestHostStores(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "image", "import", "--name", "example.com/x:1", writeTar(t, ociLayout(t, "kept")))
	for name, store := range map[string]func(testing.TB, *harness.Daemon) hostStore{"podman": podmanStore, "containerd": containerdStore, "docker": dockerStore} {
		t.Run(name, func(t *testing.T) {
			s := store(t, d)
			save := d.Command(t.Context(), "image", "save", "-f", "-", "example.com/x:1")
			load := exec.Command(s.load[0], s.load[1:]...)
			load.Env = append(os.Environ(), s.env...)
			var err error
			if load.Stdin, err = save.StdoutPipe(); err != nil {
				t.Fatal(err)
			}
			if err := save.Start(); err != nil {
				t.Fatal(err)
			}
			if out, err := load.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", s.load, err, out)
			}
			if err := save.Wait(); err != nil {
				t.Fatal(err)
			}
			imports := func(image, as string) (string, error) {
				cmd := d.Command(t.Context(), "image", "import", "--name", as, s.transport+":"+image)
				cmd.Env = append(cmd.Environ(), s.env...)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := imports("example.com/x:1", name); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out := d.Run(t, "run", "--image", name, "--", "cat", "/mark").Stdout; out != "kept" {
				t.Errorf("the image prints %q", out)
			}
			before := names(t, d)
			out, err := imports("example.com/absent:1", "absent")
			if err == nil || !strings.Contains(out, "SBX-804") || !strings.Contains(out, "absent:1") {
				t.Errorf("an absent image: %v: %s", err, out)
			}
			if after := names(t, d); after != before {
				t.Errorf("after an import that failed: %s, before it: %s", after, before)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		cmd := d.Command(t.Context(), "image", "import", "docker-daemon:x")
		cmd.Env = append(cmd.Environ(), "PATH="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "install docker") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func podmanStore(t testing.TB, _ *harness.Daemon) hostStore {
	need.Tools(t, "podman")
	dir := t.TempDir()
	config := filepath.Join(dir, "storage.conf")
	text := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(dir, "graph"), filepath.Join(dir, "run"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return hostStore{"containers-storage", []string{"podman", "load"}, []string{"CONTAINERS_STORAGE_CONF=" + config}}
}

// containerdStore is a namespace of its own in the daemon's containerd.
func containerdStore(t testing.TB, d *harness.Daemon) hostStore {
	dir := need.Env(t, "CAISSON_CONTAINERD17_DIR", "the directory of a ctr")
	return hostStore{"containerd", []string{filepath.Join(dir, "ctr"), "images", "import", "-"}, []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"), "CONTAINERD_NAMESPACE=elsewhere",
		"CONTAINERD_ADDRESS=" + filepath.Join(d.State, "containerd", "containerd.sock"),
	}}
}

// dockerStore starts a Docker daemon of its own where its program is installed. Nothing
// installs it for this test: the package starts a daemon of the host.
func dockerStore(t testing.TB, _ *harness.Daemon) hostStore {
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("needs dockerd")
	}
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "s")
	cmd := exec.Command("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs",
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "--host", socket)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("dockerd: %v: %s", err, log.String())
		}
	})
	s := hostStore{"docker-daemon", []string{"docker", "load"}, []string{"DOCKER_HOST=" + socket}}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ask := exec.Command("docker", "version")
		if ask.Env = append(os.Environ(), s.env...); ask.Run() == nil {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("dockerd does not answer: %s", log.String())
		}
	}
}
