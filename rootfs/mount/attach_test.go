package mount

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// stand is a process in user and mount namespaces of its own, with a read-only
// overlay as root: what a sandbox is to AttachInto.
type stand struct {
	pid int
}

// enter is what an OCI runtime does; it takes the root as $1. A second argument is
// bound to the workspace first, with the options of the third: a cold create.
const enter = `set -e
mount --make-rprivate /
mount --rbind "$1" "$1"
if [ -n "$2" ]; then mount --bind "$2" "$1/workspace"; mount -o "remount,bind,$3" "$1/workspace"; fi
cd "$1"
/bin/busybox pivot_root . .
/bin/busybox umount -l .
exec /bin/busybox sh -c 'cd /; echo ready; read _'`

func newStand(t *testing.T, root string, cold ...string) stand {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", enter, "enter", root}, cold...)...)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: testBase, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{},
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the stand-in said %q: %v; %s", line, err, stderr.String())
	}
	return stand{cmd.Process.Pid}
}

// newRootWith attaches a root whose lower layer has busybox and what fill adds.
func newRootWith(t *testing.T, base string, fill func(layer string)) string {
	t.Helper()
	r := newRoot(t, base)
	layer := r.Layers[0]
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(layer, "bin"), 0o755), os.WriteFile(filepath.Join(layer, "bin/busybox"), busybox, 0o755)); err != nil {
		t.Fatal(err)
	}
	if fill != nil {
		fill(layer)
	}
	if err := WritePrivate(r.Private, testBase, nil, HostFiles("x")); err != nil {
		t.Fatal(err)
	}
	if err := r.Attach(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Detach(r.Target); err != nil {
			t.Error(err)
		}
	})
	return r.Target
}

// handles are the two things by which a sandbox can be named.
func (s stand) handles(t *testing.T) map[string]*os.File {
	t.Helper()
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { _, _ = pidfd.Close(), ns.Close() })
	return map[string]*os.File{"pidfd": pidfd, "namespace": ns}
}

// at lists the mounts on a point of the process's namespace as mountinfo shows
// them, without their ids.
func at(t *testing.T, pid, point string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[4] == point {
			found = append(found, strings.Join(f[2:], " "))
		}
	}
	return found
}

func (s stand) mounts(t *testing.T, point string) []string {
	t.Helper()
	return at(t, fmt.Sprint(s.pid), point)
}

// hostDir makes a directory of another user with a file in it, opened as workspace.
func hostDir(t *testing.T, base string) *Workspace {
	t.Helper()
	dir := filepath.Join(base, "host")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "hello"), []byte("hello"), 0o600),
		os.Chown(dir, 4321, 4322), os.Chown(filepath.Join(dir, "hello"), 4321, 4322)); err != nil {
		t.Fatal(err)
	}
	w := openOwned(t, dir)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func ownerNS(t *testing.T, w *Workspace) *UserNS {
	t.Helper()
	ns, err := NewUserNS(w.Owner(testBase+1000, testBase+1000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// attachInto attaches w at a point of the host, and from there in a live sandbox.
func attachInto(t *testing.T, w *Workspace, sandbox *os.File, target string, readOnly bool, ids *UserNS) error {
	t.Helper()
	point := t.TempDir()
	if err := w.Attach(point, readOnly, ids); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Detach(point); err != nil {
			t.Error(err)
		}
	}()
	return Live{Point: point, Target: target, ReadOnly: readOnly}.AttachInto(sandbox)
}

func TestAttachInto(t *testing.T) {
	need.Root(t, "it mounts")
	for _, readOnly := range []bool{false, true} {
		for _, by := range []string{"pidfd", "namespace"} {
			t.Run(fmt.Sprintf("by %s, read-only %v", by, readOnly), func(t *testing.T) { testAttachInto(t, by, readOnly) })
		}
	}
}

func testAttachInto(t *testing.T, by string, readOnly bool) {
	base := realTemp(t)
	s := newStand(t, newRootWith(t, base, nil))
	w := hostDir(t, base)
	if got := s.mounts(t, "/workspace"); len(got) > 0 {
		t.Fatalf("before: %q", got)
	}
	own := ownMounts(t, base, "/workspace")
	if err := attachInto(t, w, s.handles(t)[by], "/workspace", readOnly, ownerNS(t, w)); err != nil {
		t.Fatal(err)
	}
	if got := ownMounts(t, base, "/workspace"); got != own {
		t.Errorf("the host's mounts changed from\n%s to\n%s", own, got)
	}
	inside := fmt.Sprintf("/proc/%d/root/workspace/", s.pid)
	if got, err := os.ReadFile(inside + "hello"); err != nil || string(got) != "hello" {
		t.Errorf("hello = %q, %v", got, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(inside+"hello", &st); err != nil || st.Uid != testBase+1000 || st.Gid != testBase+1000 {
		t.Errorf("it belongs to %d:%d, %v; want the sandbox's user", st.Uid, st.Gid, err)
	}
	err := createAs(inside+"new", testBase+1000)
	switch {
	case readOnly && !errors.Is(err, unix.EROFS):
		t.Errorf("creating in a read-only workspace: %v", err)
	case !readOnly && err != nil:
		t.Error(err)
	case !readOnly:
		if err := unix.Stat(filepath.Join(base, "host/new"), &st); err != nil || st.Uid != 4321 || st.Gid != 4322 {
			t.Errorf("on the host: %d:%d, %v, want 4321:4322", st.Uid, st.Gid, err)
		}
	}
	if err := attachInto(t, w, s.handles(t)[by], "/workspace", readOnly, nil); !errors.Is(err, sbxerr.Mount) || !strings.Contains(err.Error(), "something is mounted") {
		t.Errorf("a second attach = %v; want a refusal", err)
	}
	if got := s.mounts(t, "/workspace"); len(got) != 1 {
		t.Errorf("mounted are %q", got)
	}
}

// ownMounts are the mounts of the host of or at one of the paths. Others mount at the same
// time.
func ownMounts(t *testing.T, paths ...string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(line, " "+p) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// What the sandbox sees is the same as after a cold create, so that one posture
// check fits both.
func TestAttachIntoEqualsColdCreate(t *testing.T) {
	need.Root(t, "it mounts")
	for mode, readOnly := range map[string]bool{"rw": false, "ro": true} {
		base := realTemp(t)
		root := newRootWith(t, base, nil)
		w := hostDir(t, base)
		point := filepath.Join(base, "point")
		if err := os.Mkdir(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := w.Attach(point, readOnly, ownerNS(t, w)); err != nil {
			t.Fatal(err)
		}
		cold := newStand(t, root, point, mode+",nosuid,nodev").mounts(t, "/workspace")
		if err := Detach(point); err != nil {
			t.Fatal(err)
		}
		s := newStand(t, root)
		if err := attachInto(t, w, s.handles(t)["pidfd"], "/workspace", readOnly, ownerNS(t, w)); err != nil {
			t.Fatal(err)
		}
		live := s.mounts(t, "/workspace")
		if len(cold) != 1 || !slices.Equal(cold, live) || !strings.Contains(cold[0], mode+",nosuid,nodev") {
			t.Errorf("%s: attached %q, cold %q", mode, live, cold)
		}
	}
}

func TestAttachIntoRefuses(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	s := newStand(t, newRootWith(t, base, func(layer string) {
		if err := errors.Join(os.Mkdir(filepath.Join(layer, "full"), 0o755), os.WriteFile(filepath.Join(layer, "full/x"), nil, 0o644),
			os.Symlink("workspace", filepath.Join(layer, "link")), os.Symlink("/", filepath.Join(layer, "up"))); err != nil {
			t.Fatal(err)
		}
	}))
	w := hostDir(t, base)
	sandbox := s.handles(t)["pidfd"]
	before := s.mounts(t, "/")
	for target, want := range map[string]error{
		"": sbxerr.Internal, "/": sbxerr.Internal, "workspace": sbxerr.Internal, "/../workspace": sbxerr.Internal, "/workspace/": sbxerr.Internal, "//workspace": sbxerr.Internal, "/./workspace": sbxerr.Internal,
		"/absent": unix.ENOENT, "/bin/busybox": unix.ENOTDIR, "/link": unix.ELOOP, "/up/workspace": unix.ELOOP, "/full": sbxerr.Mount,
	} {
		if err := attachInto(t, w, sandbox, target, false, nil); !errors.Is(err, want) {
			t.Errorf("attaching at %q: %v; want %v", target, err, want)
		}
	}
	if got := s.mounts(t, "/"); !slices.Equal(got, before) {
		t.Errorf("the mounts became %q", got)
	}
	for _, point := range []string{"/full", "/workspace", "/link"} {
		if got := s.mounts(t, point); len(got) > 0 {
			t.Errorf("mounted at %s: %q", point, got)
		}
	}
	if err := attachInto(t, w, sandbox, "/workspace", false, nil); err != nil { // the probe works without the barriers
		t.Error(err)
	}
}

func TestAttachIntoOwnNamespace(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	w := hostDir(t, base)
	point := filepath.Join(base, "point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if err := attachInto(t, w, self, point, false, nil); !errors.Is(err, sbxerr.Internal) {
		t.Errorf("attaching to the host: %v", err)
	}
	if mounted, err := IsPoint(point); mounted || err != nil {
		t.Errorf("it is mounted: %v, %v", mounted, err)
	}
	if err := attachInto(t, w, w.dir, "/workspace", false, nil); !errors.Is(err, sbxerr.Mount) {
		t.Errorf("attaching to what is no namespace: %v", err)
	}
}

func TestAttachIntoEnded(t *testing.T) {
	need.Root(t, "it mounts")
	w := hostDir(t, realTemp(t))
	cmd := exec.Command("/bin/true")
	fd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, PidFD: &fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	defer pidfd.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := attachInto(t, w, pidfd, "/workspace", false, nil); !errors.Is(err, unix.ESRCH) || !errors.Is(err, sbxerr.Mount) {
		t.Errorf("attaching to an ended process: %v", err)
	}
}

// A mount that turns out to be less restricted than declared is taken off again.
func TestAttachChecksFlags(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	s := newStand(t, newRootWith(t, base, nil))
	w := hostDir(t, base)
	sandbox := s.handles(t)["pidfd"]
	attach := func(readOnly bool, restrict func(tree) error) error {
		tr, err := cloneTree(w.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if err := restrict(tr); err != nil {
			t.Fatal(err)
		}
		return onThrowawayThread(func() error {
			if err := enterMounts(sandbox); err != nil {
				return err
			}
			return tr.attachOn("workspace", readOnly, OnEmpty)
		})
	}
	if err := attach(false, func(tree) error { return nil }); err == nil || !strings.Contains(err.Error(), "lacks the flags 0x6") {
		t.Errorf("without nosuid and nodev: %v", err)
	}
	if err := attach(true, func(tr tree) error { return tr.restrict(false, nil) }); err == nil || !strings.Contains(err.Error(), "lacks the flags 0x1") {
		t.Errorf("writable instead of read-only: %v", err)
	}
	if got := s.mounts(t, "/workspace"); len(got) > 0 {
		t.Errorf("mounted all the same: %q", got)
	}
	if err := attach(true, func(tr tree) error { return tr.restrict(true, nil) }); err != nil {
		t.Errorf("as declared: %v", err)
	}
}

// A mount that turns out to be elsewhere is taken off again.
func TestTakeOff(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	s := newStand(t, newRootWith(t, base, func(layer string) {
		if err := os.Mkdir(filepath.Join(layer, "other"), 0o755); err != nil {
			t.Fatal(err)
		}
	}))
	w := hostDir(t, base)
	tr, err := cloneTree(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.restrict(false, nil); err != nil {
		t.Fatal(err)
	}
	var wrong error
	var between []string
	sandbox := s.handles(t)["pidfd"]
	attached, looked := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- onThrowawayThread(func() error {
			err := enterMounts(sandbox)
			if err == nil {
				err = tr.attachOn("other", false, OnEmpty)
			}
			close(attached)
			<-looked
			if err != nil {
				return err
			}
			wrong = tr.checkAt("workspace")
			return tr.takeOff()
		})
	}()
	<-attached
	between = s.mounts(t, "/other") // not on that thread, whose /proc is not ours
	close(looked)
	if err := errors.Join(<-done, tr.Close()); err != nil {
		t.Fatal(err)
	}
	if wrong == nil || len(between) != 1 {
		t.Errorf("checkAt = %v with %q at the other place", wrong, between)
	}
	if got := s.mounts(t, "/other"); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// The thread that enters the sandbox is never the one that stands for the daemon.
func TestThrowawayThreadIsNotMain(t *testing.T) {
	for range 50 {
		if err := onThrowawayThread(func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("it is the main thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// What an attach costs; the numbers are for people.
func TestAttachIntoCost(t *testing.T) {
	need.Root(t, "it mounts")
	base := realTemp(t)
	s := newStand(t, newRootWith(t, base, func(layer string) {
		for i := range 50 {
			if err := os.Mkdir(filepath.Join(layer, fmt.Sprintf("w%d", i)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}))
	w := hostDir(t, base)
	cache := NewUserNSCache(8)
	sandbox := s.handles(t)["pidfd"]
	var attach, get []time.Duration
	for i := range 50 {
		began := time.Now()
		ns, err := cache.Get(w.Owner(testBase+1000, testBase+1000))
		get = append(get, time.Since(began))
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		err = attachInto(t, w, sandbox, fmt.Sprintf("/w%d", i), false, ns)
		attach = append(attach, time.Since(began))
		if err := errors.Join(err, ns.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := cache.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("the first namespace: %s", get[0])
	for name, took := range map[string][]time.Duration{"a kept namespace": get[1:], "attach": attach} {
		slices.Sort(took)
		t.Logf("%s: median %s, least %s, most %s", name, took[len(took)/2], took[0], took[len(took)-1])
	}
}
