package harness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settleTime is how long what was ended may take to vanish from the kernel's
// lists.
const settleTime = 10 * time.Second

// CheckNothingLeft fails t if anything of d is left on the host: a process, a
// mount, a network namespace, a cgroup, or a file outside its root.
func (d *Daemon) CheckNothingLeft(t testing.TB) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // nothing announces the end of a cgroup
		if left = d.leftovers(t); len(left) == 0 {
			return
		}
	}
	t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}

func (d *Daemon) leftovers(t testing.TB) []string {
	t.Helper()
	return slices.Concat(processes(t, d.Root, d.State), mounts(t, d.Root, d.State), d.cgroups(t), d.files(t))
}

// processes lists those whose command line, executable or working directory
// names one of the directories.
func processes(t testing.TB, dirs ...string) []string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // gone meanwhile: nothing is left of it
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		about := strings.ReplaceAll(string(cmdline), "\x00", " ") + " " + exe
		for _, dir := range dirs {
			if strings.Contains(about, dir) {
				found = append(found, fmt.Sprintf("process %d: %s", pid, about))
			}
		}
	}
	return found
}

func mounts(t testing.TB, dirs ...string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		for _, dir := range dirs {
			if strings.Contains(line, dir) {
				found = append(found, "mount "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// Instance is the daemon's name among those of the host, as it tells itself.
func (d *Daemon) Instance() string { return instanceOf(d.Root) }

func (d *Daemon) cgroups(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		dirs, err := filepath.Glob(pattern + d.Instance())
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// files lists what is left where only live sandboxes have something.
func (d *Daemon) files(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, dir := range []string{"sandboxes", "ids"} {
		found = append(found, children(t, filepath.Join(d.State, dir))...)
	}
	for _, dir := range []string{"output", "spool"} {
		found = append(found, children(t, filepath.Join(d.Root, dir))...)
	}
	return found
}

func children(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, "file "+filepath.Join(dir, e.Name()))
	}
	return found
}

// AwaitNoSandbox waits until the daemon holds no sandbox and nothing of one is
// left on the host. A run's last traces go while its caller already has the
// result.
func (d *Daemon) AwaitNoSandbox(t testing.TB) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // nothing announces the last trace
		if left = d.sandboxTraces(t); len(left) == 0 && strings.TrimSpace(d.Try("ls", "-o", "json").Stdout) == "[]" {
			return
		}
	}
	t.Fatalf("traces of sandboxes:\n%s", strings.Join(left, "\n"))
}

func (d *Daemon) sandboxTraces(t testing.TB) []string {
	t.Helper()
	found := d.files(t)
	found = append(found, mounts(t, filepath.Join(d.State, "sandboxes")+"/")...)
	for _, parent := range d.cgroups(t) {
		err := filepath.WalkDir(parent, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && path != parent {
				found = append(found, "cgroup "+path)
			}
			return nil // gone meanwhile
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// OpenFiles counts the daemon's descriptors.
func (d *Daemon) OpenFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// PeakMemory is the most memory that the daemon had so far, in bytes.
func (d *Daemon) PeakMemory(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatalf("the daemon's status says no VmHWM: %v", err)
	}
	return kib << 10
}
