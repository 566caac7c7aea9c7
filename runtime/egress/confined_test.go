package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel says of a gateway that serves a sandbox, and carries a
// connection. Every comparison is made of this process as well, which must
// fail it: a check that passes anything checks nothing.
func TestWhatTheGatewayMayDo(t *testing.T) {
	w := newWorld(t, usual)
	// What a daemon may have got from whoever started it: not close-on-exec.
	leak, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	if _, err := w.reach(t, b, "web.example"); err != nil {
		t.Fatal(err)
	}
	pid := w.pid()
	if err := checkConfined(pid, DefaultID, DefaultID); err != nil {
		t.Error(err)
	}
	if err := checkConfined(os.Getpid(), 0, 0); err == nil || !strings.Contains(err.Error(), "Seccomp") || !strings.Contains(err.Error(), "root is not empty") {
		t.Errorf("the control: %v", err)
	}
	if err := checkConfined(pid, DefaultID+1, DefaultID); err == nil {
		t.Error("another user is not seen")
	}
	t.Run("descriptors", func(t *testing.T) { checkDescriptors(t, pid) })
	t.Run("namespaces", func(t *testing.T) {
		for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net"} {
			same := linkOf(t, pid, "ns/"+ns) == linkOf(t, os.Getpid(), "ns/"+ns)
			if same != (ns == "net") {
				t.Errorf("the %s namespace is the daemon's: %v", ns, same)
			}
		}
	})
	t.Run("surroundings", func(t *testing.T) { checkSurroundings(t, pid) })
}

func linkOf(t *testing.T, pid int, name string) string {
	t.Helper()
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// checkDescriptors wants those that it needs, and no other.
func checkDescriptors(t *testing.T, pid int) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range entries {
		kind, _, _ := strings.Cut(linkOf(t, pid, "fd/"+e.Name()), ":[")
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	want := []string{
		"/dev/null", "/dev/null", "anon_inode", "anon_inode", "pipe", // epoll and its eventfd; standard error
		"socket", "socket", "socket", "socket", "socket", "socket", "socket", "socket", // the daemon, the kernel's routes, four of the sandbox, two of a connection
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("it holds %q, not %q", kinds, want)
	}
}

func checkSurroundings(t *testing.T, pid int) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if env := read("environ"); env != "" {
		t.Errorf("its environment is %q", env)
	}
	if root, cwd := linkOf(t, pid, "root"), linkOf(t, pid, "cwd"); root != "/" || cwd != "/" {
		t.Errorf("it is in %s of the root %s", cwd, root)
	}
	mounts := strings.Split(strings.TrimSpace(read("mounts")), "\n")
	if len(mounts) != 1 || !strings.Contains(mounts[0], " / tmpfs ro,nosuid,nodev,noexec") {
		t.Errorf("its mounts are %q", mounts)
	}
	limits := read("limits")
	for _, line := range strings.Split(limits, "\n") {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Max core file size") && (f[4] != "0" || f[5] != "0"):
			t.Errorf("it may dump core: %s", line)
		case strings.HasPrefix(line, "Max open files") && f[3] != f[4]:
			t.Errorf("it could have more descriptors: %s", line)
		}
	}
	stat := strings.Fields(read("stat"))
	if stat[5] != stat[0] {
		t.Errorf("its session is %s, not its own", stat[5])
	}
	if fileOwner(t, fmt.Sprintf("/proc/%d/environ", pid)) != 0 {
		t.Error("it is dumpable: its own user may trace it")
	}
}

// fileOwner is root for the files in /proc of a process that is not dumpable
// (proc(5)).
func fileOwner(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}
