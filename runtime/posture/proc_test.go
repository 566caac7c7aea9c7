package posture

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func pidfd(t *testing.T, pid int) *os.File {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

// TestReadOwnProcess reads the test's own process through all that reads a
// sandbox's.
func TestReadOwnProcess(t *testing.T) {
	dir, err := openProcess(os.Getpid(), pidfd(t, os.Getpid()))
	must(t, err)
	l, err := readLive(dir)
	must(t, errors.Join(err, dir.close()))
	wd, err := os.Getwd()
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	if l.cwd.path != wd || l.program.path != exe || l.root.path != "/" {
		t.Errorf("places %+v %+v %+v", l.cwd, l.program, l.root)
	}
	if id, ok := mountOf(l.mounts, "/"); !ok || id != l.root.mount {
		t.Errorf("root is on mount %d, mountinfo says %d", l.root.mount, id)
	}
	if len(l.threads) == 0 || len(l.files) < 3 || len(l.limits) != len(limitNames) || l.env == "" {
		t.Errorf("%d threads, %d files, %d limits", len(l.threads), len(l.files), len(l.limits))
	}
}

func TestOpenProcessRefuses(t *testing.T) {
	child := exec.Command("/bin/sleep", "60")
	must(t, child.Start())
	ended := pidfd(t, child.Process.Pid)
	must(t, child.Process.Kill())
	_ = child.Wait() // killed
	file, err := os.Open(os.DevNull)
	must(t, err)
	t.Cleanup(func() { must(t, file.Close()) })
	for name, tc := range map[string]struct {
		pid   int
		pidfd *os.File
		ended bool
	}{
		"ended":           {child.Process.Pid, ended, true},
		"number reused":   {os.Getpid(), ended, true},
		"another process": {os.Getppid(), pidfd(t, os.Getpid()), false},
		"not a pidfd":     {os.Getpid(), file, false},
		"no such process": {1 << 30, pidfd(t, os.Getpid()), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openProcess(tc.pid, tc.pidfd)
			if err == nil || errors.Is(err, errEnded) != tc.ended {
				t.Errorf("error %v, want ended: %v", err, tc.ended)
			}
		})
	}
}

func TestOpenDirectoryIsOfTheProcess(t *testing.T) {
	child := exec.Command("/bin/sleep", "60")
	must(t, child.Start())
	dir, err := openProcess(child.Process.Pid, pidfd(t, child.Process.Pid))
	must(t, err)
	must(t, child.Process.Kill())
	_ = child.Wait() // killed
	if _, err := readLive(dir); !errors.Is(err, errEnded) {
		t.Errorf("reading a process that has ended: %v", err)
	}
	must(t, dir.close())
}

func TestCheckRefuses(t *testing.T) {
	whole := &specs.Spec{Process: &specs.Process{}, Root: &specs.Root{}, Linux: &specs.Linux{}}
	self := pidfd(t, os.Getpid())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		d    Declared
		code sbxerr.Code
	}{
		"nothing":              {t.Context(), Declared{}, sbxerr.Internal},
		"no pidfd":             {t.Context(), Declared{PID: 1, Spec: whole}, sbxerr.Internal},
		"no specification":     {t.Context(), Declared{PID: 1, PIDFD: self}, sbxerr.Internal},
		"half a specification": {t.Context(), Declared{PID: 1, PIDFD: self, Spec: &specs.Spec{}}, sbxerr.Internal},
		"canceled":             {canceled, Declared{PID: 1, PIDFD: self, Spec: whole}, sbxerr.Canceled},
		"no network namespace": {t.Context(), Declared{PID: os.Getpid(), PIDFD: self, Spec: whole}, sbxerr.Posture},
	} {
		t.Run(name, func(t *testing.T) {
			results, err := Check(tc.ctx, tc.d)
			if sbxerr.Of(err) != tc.code || results != nil {
				t.Errorf("error %v, want %s", err, tc.code)
			}
		})
	}
}

// TestCheckOfTheTestItself: a process that is no sandbox differs in everything
// that confines.
func TestCheckOfTheTestItself(t *testing.T) {
	s := loadScene(t)
	d := s.declared
	d.PID, d.PIDFD = os.Getpid(), pidfd(t, os.Getpid())
	for i := range d.Spec.Linux.Namespaces {
		switch n := &d.Spec.Linux.Namespaces[i]; n.Type {
		case specs.NetworkNamespace:
			n.Path = "/proc/self/ns/net"
		case specs.UserNamespace:
			n.Path = "/proc/self/ns/user"
		}
	}
	results, err := Check(t.Context(), d)
	if sbxerr.Of(err) != sbxerr.Posture {
		t.Fatalf("error %v", err)
	}
	for _, name := range strings.Fields("uid seccomp namespace.net namespace.user namespace.pid uid_map umask_ oom_score_adj environment program") {
		if name == "umask_" {
			continue // may be the same by chance
		}
		if slices.ContainsFunc(results, func(r Result) bool { return r.Name == name && r.OK }) {
			t.Errorf("%s of an ordinary process is as declared", name)
		}
	}
}

func TestNamespaceLink(t *testing.T) {
	link, err := namespaceLink("net", "/proc/thread-self/ns/net")
	must(t, err)
	if want, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || link != want {
		t.Errorf("link %q, want %q", link, want)
	}
	for _, path := range []string{"", "/nowhere", "/etc/passwd", "/"} {
		if link, err := namespaceLink("net", path); err == nil {
			t.Errorf("%q gives %q", path, link)
		}
	}
}

func TestSourceOf(t *testing.T) {
	mounts, err := parsePlaces("1 0 8:1 / / rw - ext4 a rw\n2 1 0:5 / /run rw - tmpfs t rw\n3 1 0:6 /sub /run rw - tmpfs t rw\n4 1 8:2 /x /a\\040b rw - ext4 c rw\n")
	must(t, err)
	for p, want := range map[string]source{
		"/":        {"8:1", "/"},
		"/etc/x":   {"8:1", "/etc/x"},
		"/run":     {"0:6", "/sub"},
		"/run/y":   {"0:6", "/sub/y"},
		"/running": {"8:1", "/running"},
		"/a b/c":   {"8:2", "/x/c"},
	} {
		if got, ok := sourceOf(mounts, p); !ok || got != want {
			t.Errorf("%q is at %v, want %v", p, got, want)
		}
	}
	if got, ok := sourceOf(nil, "/"); ok {
		t.Errorf("found %v without mounts", got)
	}
}

func TestShownSize(t *testing.T) {
	page := uint64(os.Getpagesize())
	for in, want := range map[string]string{"64k": "64k", "67108864": "65536k", "1": shownSize("1"), "x": "x"} {
		if got := shownSize(in); got != want {
			t.Errorf("%s shows as %s, want %s", in, got, want)
		}
	}
	if page == 4096 && (shownSize("1") != "4k" || shownSize("4097") != "8k") {
		t.Errorf("sizes are not rounded up: %s, %s", shownSize("1"), shownSize("4097"))
	}
}

func TestParseRefuses(t *testing.T) {
	for name, parse := range map[string]func() error{
		"status without fields": func() error { _, err := parseStatus("Name:\tx\n"); return err },
		"status line":           func() error { _, err := parseStatus("x\n"); return err },
		"status field twice":    func() error { _, err := parseStatus("CapEff:\t0\nCapEff:\t1\n"); return err },
		"cgroup line":           func() error { _, err := parseCgroups("1:x\n"); return err },
		"short mount":           func() error { _, err := parseMounts("1 2 3\n"); return err },
		"short place":           func() error { _, err := parsePlaces("1 2 8:1 /\n"); return err },
		"mount id":              func() error { _, err := parseMounts("x 0 8:1 / / rw - ext4 a rw\n"); return err },
		"mount without dash":    func() error { _, err := parseMounts("1 0 8:1 / / rw ext4 a rw b c\n"); return err },
		"no limits":             func() error { _, err := ParseLimits(""); return err },
		"short limit":           func() error { _, err := ParseLimits("Max cpu time\n"); return err },
		"limit without hard":    func() error { _, err := ParseLimits("Max cpu time              1\n"); return err },
		"limit without number":  func() error { _, err := ParseLimits("Max cpu time              a b\n"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if parse() == nil {
				t.Error("accepted")
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	live := loadRecorded(f, "live.txt")
	for _, key := range []string{"read mountinfo", "read limits", "read cgroup", "read net/unix", "read fdinfo/3"} {
		f.Add(live[key])
	}
	f.Add("1 0 8:1 / /a\\040b\\134 rw shared:1 - ext4 a rw\n")
	f.Fuzz(func(t *testing.T, text string) {
		if mounts, err := parseMounts(text); err == nil && len(mounts) < strings.Count(text, "\n") {
			t.Errorf("%d mounts of %d lines", len(mounts), strings.Count(text, "\n"))
		}
		if mounts, err := parsePlaces(text); err == nil && len(mounts) < strings.Count(text, "\n") {
			t.Errorf("%d places of %d lines", len(mounts), strings.Count(text, "\n"))
		}
		if limits, err := ParseLimits(text); err == nil && len(limits) == 0 {
			t.Error("no limits and no error")
		}
		if th, err := parseStatus(text); err == nil && th.fields["CapEff"] == "" && !strings.Contains(text, "CapEff:") {
			t.Error("a status without capabilities")
		}
		_, _ = parseCgroups(text)
		parseUnix(text)
		field(text, "Pid")
	})
}
