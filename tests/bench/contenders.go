package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// contender is one way to run `true` in a container, from a cold start to the
// removal of what its own tool removes.
type contender struct {
	name    string
	what    string
	command func(round int) *exec.Cmd
	skipped string // why it does not take part; empty: it does
}

// stand holds what the contenders share: one daemon, one root file system and
// a scratch directory, which goes with everything that they keep.
type stand struct {
	t       *driver
	daemon  *harness.Daemon
	scratch string
	rootfs  string // for those without an image store of containerd
	stock_  *stock

	podmanOnce sync.Once
}

const busybox = "rootfs/base/assets/busybox" // what the image base is made of

func newStand(t *driver, d *harness.Daemon) *stand {
	scratch, err := os.MkdirTemp("/var/tmp", "caisson-bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(scratch); err != nil {
			t.Error(err)
		}
	})
	s := &stand{t: t, daemon: d, scratch: scratch, rootfs: filepath.Join(scratch, "bundle", "rootfs")}
	if err := s.makeRootfs(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stand) makeRootfs() error {
	for _, dir := range []string{"bin", "dev", "proc", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.rootfs, dir), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("run this from the top of the tree, after make assets: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.rootfs, "bin", "busybox"), program, 0o755),
		os.Symlink("busybox", filepath.Join(s.rootfs, "bin", "true")),
		os.Symlink("busybox", filepath.Join(s.rootfs, "bin", "sleep")))
}

// contenders prepares everybody and tries each once. Whoever cannot run here
// is skipped with the reason.
func (s *stand) contenders() []contender {
	all := []contender{s.process(), s.caisson(), s.ctr(), s.runc(), s.bwrap(), s.podman(), s.docker()}
	for i := range all {
		c := &all[i]
		if c.skipped != "" {
			continue
		}
		if _, err := timed(c.command(-1)); err != nil {
			c.skipped = err.Error()
		}
		s.daemon.AwaitNoSandbox(s.t)
	}
	if all[1].skipped != "" {
		s.t.Fatal("caisson itself does not run: " + all[1].skipped)
	}
	return all
}

// timed runs cmd and tells how long the whole process took.
func timed(cmd *exec.Cmd) (time.Duration, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, lastLine(out.String()))
	}
	return took, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// process shows what the machine itself costs, and how noisy it is.
func (s *stand) process() contender {
	return contender{name: "process", what: "/bin/true, no container: the floor of this machine", command: func(int) *exec.Cmd {
		return exec.Command("/bin/true")
	}}
}

func (s *stand) caisson() contender {
	return contender{name: "caisson", what: "caisson run -- true", command: func(int) *exec.Cmd {
		return s.daemon.Command(s.t.Context(), "run", "--", "true")
	}}
}

// runc is the floor of everything that is built on it: no daemon, no image.
func (s *stand) runc() contender {
	c := contender{name: "runc", what: "runc run of a ready bundle: no daemon, no image, runc's default spec"}
	bundle := filepath.Dir(s.rootfs)
	if err := writeBundle(harness.Bin(s.t, "runc"), bundle, "/bin/true"); err != nil {
		c.skipped = err.Error()
		return c
	}
	c.command = func(round int) *exec.Cmd {
		return exec.Command(harness.Bin(s.t, "runc"), "--root", filepath.Join(s.scratch, "runc"), "run", "--bundle", bundle, fmt.Sprintf("caisson-bench%d", round+1))
	}
	return c
}

func writeBundle(runc, bundle string, args ...string) error {
	if err := removeEmpty(filepath.Join(bundle, "config.json")); err != nil { // runc writes no second one
		return err
	}
	if _, err := timed(exec.Command(runc, "spec", "--bundle", bundle)); err != nil {
		return err
	}
	path := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	spec.Process.Terminal, spec.Process.Args = false, args
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func (s *stand) bwrap() contender {
	c := contender{name: "bwrap", what: "bwrap --unshare-all: namespaces only, no limits and no filter"}
	if _, err := exec.LookPath("bwrap"); err != nil {
		c.skipped = err.Error()
		return c
	}
	c.command = func(int) *exec.Cmd {
		return exec.Command("bwrap", "--unshare-all", "--ro-bind", s.rootfs, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true")
	}
	return c
}

// podman works in the scratch directory and in a cgroup of its own: nothing
// else of the host is touched. It gets the limits that every host allows,
// because its own defaults need CAP_SYS_RESOURCE.
func (s *stand) podman() contender {
	c := contender{name: "podman", what: "podman run --rm --network none, its root an overlay; no user namespace or limits"}
	if _, err := exec.LookPath("podman"); err != nil {
		c.skipped = err.Error()
		return c
	}
	store, group := filepath.Join(s.scratch, "podman"), "/"+filepath.Base(s.scratch)
	s.podmanOnce.Do(func() { s.cleanPodman(store, group) })
	c.command = func(int) *exec.Cmd {
		return exec.Command("podman", "--root", store, "--runroot", filepath.Join(s.scratch, "podman-run"), "--tmpdir", filepath.Join(s.scratch, "podman-tmp"),
			"--cgroup-manager", "cgroupfs", "--events-backend", "none",
			"run", "--rm", "--network", "none", "--cgroup-parent", group, "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
			"--rootfs", s.rootfs+":O", "/bin/true")
	}
	return c
}

// cleanPodman has what podman keeps removed when all its containers are, which it may have in
// several measurements: it is to be called before the first.
func (s *stand) cleanPodman(store, group string) {
	_, hadRunc := os.Stat(runcDefaultRoot)
	s.t.Cleanup(func() {
		errs := []error{awaitGone(group), unmount(filepath.Join(store, "overlay"))}
		if hadRunc != nil {
			errs = append(errs, removeEmpty(runcDefaultRoot))
		}
		if err := errors.Join(errs...); err != nil {
			s.t.Error(err)
		}
	})
}

// runcDefaultRoot is where podman lets runc keep its state.
const runcDefaultRoot = "/run/runc"

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func unmount(target string) error {
	var err error
	for err == nil { // there may be several, one on another
		err = unix.Unmount(target, unix.MNT_DETACH)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not mounted
		return nil
	}
	return err
}

// awaitGone removes a group of ours as soon as it is empty: what podman started
// to clean up after a container outlives the command that removed it.
func awaitGone(group string) error {
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // nothing announces it on cgroup v1; podman takes its time with a container
		if err = removeCgroups(group); err == nil {
			return nil
		}
	}
	return err
}

// removeCgroups removes a group of ours, and those in it, from all hierarchies.
func removeCgroups(group string) error {
	tops, err := filepath.Glob("/sys/fs/cgroup/*" + group)
	if err != nil {
		return err
	}
	var dirs []string
	for _, top := range append(tops, "/sys/fs/cgroup"+group) {
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // gone meanwhile
		})
		if err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(dirs) { // the inner ones first
		err = errors.Join(err, removeEmpty(dir))
	}
	return err
}

// docker can only be asked to use its own store: the image is removed again.
func (s *stand) docker() contender {
	c := contender{name: "docker", what: "docker run --rm --network none"}
	if _, err := exec.LookPath("docker"); err != nil {
		c.skipped = err.Error()
		return c
	}
	if _, err := timed(exec.Command("docker", "version", "--format", "{{.Server.Version}}")); err != nil {
		c.skipped = err.Error()
		return c
	}
	archive := filepath.Join(s.scratch, "rootfs.tar")
	_, err := timed(exec.Command("tar", "-C", s.rootfs, "-cf", archive, "."))
	if err == nil {
		_, err = timed(exec.Command("docker", "import", archive, "caisson-bench"))
	}
	if err != nil {
		c.skipped = err.Error()
		return c
	}
	s.t.Cleanup(func() {
		if _, err := timed(exec.Command("docker", "rmi", "--force", "caisson-bench")); err != nil {
			s.t.Error(err)
		}
	})
	c.command = func(int) *exec.Cmd {
		return exec.Command("docker", "run", "--rm", "--network", "none", "caisson-bench", "/bin/true")
	}
	return c
}
