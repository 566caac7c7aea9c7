package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// inspected is what `caisson inspect` says, as far as it is looked at.
type inspected struct {
	ID         string
	HostIDBase uint32 `json:"host_id_base"`
	HostIDSize uint32 `json:"host_id_size"`
	PID        int
	Cgroup     string
}

// detached starts a sandbox that stays until the end of t.
func detached(t *testing.T, args ...string) inspected {
	t.Helper()
	id := strings.TrimSpace(daemon.Run(t, append([]string{"run", "-d"}, args...)...).Stdout)
	t.Cleanup(func() { daemon.Run(t, "rm", "--force", id) })
	var d inspected
	daemon.Run(t, "inspect", id).JSONIn(t, "sandbox", &d)
	return d
}

//caisson:smoke
func TestSandboxesShareNoIDs(t *testing.T) {
	held(t, "P010", "two sandboxes have ids of their own")
	a, b := detached(t, "--", "sleep", "1000"), detached(t, "--", "sleep", "1000")
	for _, d := range []inspected{a, b} {
		if d.HostIDBase < 1<<16 || d.HostIDSize != 1<<16 {
			t.Errorf("ids %d, %d of them", d.HostIDBase, d.HostIDSize)
		}
		if got := strings.Fields(procFile(t, d.PID, "uid_map")); !slices.Equal(got, []string{"0", fmt.Sprint(d.HostIDBase), "65536"}) {
			t.Errorf("the kernel maps %q, inspect says %d", got, d.HostIDBase)
		}
	}
	if a.HostIDBase < b.HostIDBase+b.HostIDSize && b.HostIDBase < a.HostIDBase+a.HostIDSize {
		t.Errorf("blocks %d and %d overlap", a.HostIDBase, b.HostIDBase)
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		seen := map[string]bool{}
		for _, pid := range []int{os.Getpid(), a.PID, b.PID} {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			must(t, err)
			if seen[link] {
				t.Errorf("namespace %s %s is shared", ns, link)
			}
			seen[link] = true
		}
	}
}

func procFile(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	must(t, err)
	return string(data)
}

// A command is confined field by field as PID 1 is.
func TestCommandHasThePostureOfPID1(t *testing.T) {
	held(t, "P014", "a command's posture is PID 1's")
	d := detached(t, "--", "sleep", "1000")
	var command int
	await(t, "the command", func() bool { command = childOf(t, d.PID); return command != 0 })
	await(t, "the command's offer to the kernel", func() bool { // by PID 1, once the command runs
		return posture(t, command)["oom_score_adj"] == "1000\n"
	})
	init, exec := posture(t, d.PID), posture(t, command)
	delete(init, "oom_score_adj")
	for name, want := range init {
		if got := exec[name]; got != want || want == "" {
			t.Errorf("%s of the command is %q, of PID 1 %q", name, got, want)
		}
	}
	if len(init) < 20 {
		t.Errorf("only %d fields were compared", len(init))
	}
}

// TestCommandWithLimitsIsOffered: a command that waits for its own cgroup is what the kernel
// kills first, too.
func TestCommandWithLimitsIsOffered(t *testing.T) {
	d := detached(t, "--", "sleep", "1000")
	first := 0
	await(t, "the first command", func() bool { first = childOf(t, d.PID); return first != 0 })
	daemon.Run(t, "exec", "-d", "-m", "32M", d.ID, "--", "sleep", "1000")
	await(t, "its offer to the kernel", func() bool {
		for _, pid := range childrenOf(t, d.PID) {
			if pid != first && procFile(t, pid, "oom_score_adj") == "1000\n" {
				return true
			}
		}
		return false
	})
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	if all := childrenOf(t, pid); len(all) > 0 {
		return all[0]
	}
	return 0
}

func childrenOf(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(t, err)
	for _, f := range tasks {
		data, err := os.ReadFile(f)
		must(t, err)
		for field := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(field); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// posture reads from the host what confines a process.
func posture(t *testing.T, pid int) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for line := range strings.Lines(procFile(t, pid, "status")) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Umask", "Cpus_allowed":
			fields[name] = "=" + strings.TrimSpace(value)
		}
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		must(t, err)
		fields["namespace "+ns] = link
	}
	for _, link := range []string{"root"} {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, link))
		must(t, err)
		fields[link] = to
	}
	for _, file := range []string{"uid_map", "gid_map", "cgroup", "oom_score_adj", "mountinfo"} {
		fields[file] = procFile(t, pid, file)
	}
	for line := range strings.Lines(procFile(t, pid, "limits")) {
		// Go raises its own soft limit of descriptors; a command gets the declared one.
		if !strings.HasPrefix(line, "Limit") && !strings.HasPrefix(line, "Max open files") {
			fields["limit "+strings.TrimSpace(line[:26])] = line
		}
	}
	return fields
}

// What a sandbox makes in a workspace belongs to the workspace's owner and can
// give nobody rights on the host.
func TestWorkspaceGivesNoRights(t *testing.T) {
	held(t, "P011", "files in a workspace")
	dir := workspace(t)
	must(t, os.Chown(dir, 4321, 4322))
	copyFile(t, prober(t), filepath.Join(dir, "prober"), 0o755)
	must(t, os.Chown(filepath.Join(dir, "prober"), 4321, 4322))
	daemon.Try("run", "--workspace", dir, "--", "sh", "-c", "cp prober a; chmod 4755 a; chmod 2755 a; chmod u+s a; chmod 6777 .; mknod n c 1 3; mkdir -m 2755 d; touch f; chown 0 f; ln -s / s; exit 0")
	for _, name := range []string{".", "a", "f", "s"} {
		st, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		s := st.Sys().(*syscall.Stat_t)
		if s.Uid != 4321 || s.Gid != 4322 || st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s: owner %d:%d, mode %v", name, s.Uid, s.Gid, st.Mode())
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "n")); !os.IsNotExist(err) {
		t.Errorf("a device node was made: %v", err)
	}
}

func workspace(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "escape-ws-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// No spelling of a user is root, and none is taken for another.
//
//caisson:host the daemon's own affair, the same on every kernel
func TestUsersAreNeverRoot(t *testing.T) {
	held(t, "P012", "spellings of root")
	withProber(t)
	for _, user := range []string{"0", "root", "0:0", "1000:0", "root:root", "-1", "4294967295", "4294967296", "2147483648", "0x0", "+0", " 0", "00", "1000:9e18",
		"1000:-1", "nonexistent", "1000:nonexistent", ":", ":0", "1000:", "0\n", "65536"} {
		t.Run(user, func(t *testing.T) {
			r := daemon.Try("run", "--json", "--image", proberImage, "--user="+user, "--", proberPath, "euid")
			if r.Code == 0 {
				t.Errorf("user %q was taken: %s", user, r.Stdout)
			}
		})
	}
	for _, user := range []string{"0", "root", "0x0", "4294967296", "-1", "nonexistent"} {
		t.Run("image "+user, func(t *testing.T) {
			data := layout{config: object{"User": user}, layer: proberArchive(t)}.bytes(t)
			daemon.TryWith(string(data), "image", "import", "--name", "escape-user", "-") // may be refused
			defer daemon.Try("image", "rm", "escape-user")
			r := daemon.Try("run", "--image", "escape-user", "--", proberPath, "euid")
			if r.Code == 0 && r.Stdout != "1000\n" {
				t.Errorf("an image for %q runs as %s", user, r.Stdout)
			}
		})
	}
}
