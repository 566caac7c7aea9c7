package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// The peer of these tests, a user that no host has.
const (
	testUID   = 1830061234
	testGID   = 1830061235
	testGroup = 1830061236
)

var testCaller = User(testUID, testGID, []uint32{testGroup}, 1)

const probeVariable = "CAISSON_TEST_PEER_PROBE"

// TestMain is also the program that runs as the peer.
func TestMain(m *testing.M) {
	if dirs := os.Getenv(probeVariable); dirs != "" {
		if err := json.NewEncoder(os.Stdout).Encode(probe(strings.Split(dirs, ":"))); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// can is what a process can really do with a directory.
type can struct{ Read, Write bool }

func probe(dirs []string) map[string]can {
	out := map[string]can{}
	for _, dir := range dirs {
		if strings.Contains(filepath.Base(dir), "file") {
			out[dir] = can{canOpen(dir, os.O_RDONLY), canOpen(dir, os.O_RDONLY) && canOpen(dir, os.O_WRONLY)}
			continue
		}
		_, err := os.ReadDir(dir)
		var c can
		if err == nil && os.Chdir(dir) == nil {
			c.Read = true
			f, err := os.CreateTemp(".", "probe")
			if err == nil {
				c.Write = errors.Join(f.Close(), os.Remove(f.Name())) == nil
			}
		}
		out[dir] = c
	}
	return out
}

func canOpen(path string, flag int) bool {
	f, err := os.OpenFile(path, flag, 0)
	return err == nil && f.Close() == nil
}

// asPeer runs the probe in a real process of the peer.
func asPeer(t *testing.T, dirs []string) map[string]can {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe") // its directory may be closed to the peer
	cmd.Env = []string{probeVariable + "=" + strings.Join(dirs, ":")}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testGID, Groups: []uint32{testGroup}}}
	data, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]can{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// openTemp is a new directory that everybody can reach.
func openTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson-peer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, dir string, uid, gid int, mode uint32) {
	t.Helper()
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, gid), unix.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
}

func try(g Grant, dir string, write bool) error {
	d, err := g.CheckWorkspace(context.Background(), dir, write)
	if err != nil {
		return err
	}
	return d.Close()
}

// TestCheckWorkspaceIsWhatTheUserCan compares with a real process of the peer,
// for every owner and every mode that differs.
func TestCheckWorkspaceIsWhatTheUserCan(t *testing.T) {
	need.Root(t, "it becomes others")
	base := openTemp(t)
	mkdir(t, filepath.Join(base, "behind"), 0, 0, 0o711)
	mkdir(t, filepath.Join(base, "closed"), 0, 0, 0o700)
	var dirs []string
	owned := map[string]bool{}
	for _, owner := range [][2]int{{testUID, testGID}, {testUID, testGroup}, {testUID, 0}, {0, testGID}, {0, testGroup}, {0, 0}} {
		for _, mode := range []uint32{0o700, 0o500, 0o300, 0o600, 0o070, 0o750, 0o770, 0o2775, 0o705, 0o007, 0o755, 0o1777, 0o744, 0o711, 0} {
			for _, parent := range []string{"", "behind", "closed"} {
				dir := filepath.Join(base, parent, fmt.Sprintf("d%d-%d-%o", owner[0], owner[1], mode))
				mkdir(t, dir, owner[0], owner[1], mode)
				dirs = append(dirs, dir)
				owned[dir] = owner[0] == testUID && owner[1] != 0
			}
		}
	}
	g := grant(t, policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID} })), testCaller)
	count := map[can]int{}
	for dir, want := range asPeer(t, dirs) {
		count[want]++
		if err := try(g, dir, false); (err == nil) != want.Read || err != nil && sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s: the peer can read: %v; asked: %v", dir, want.Read, err)
		}
		if err := try(g, dir, true); (err == nil) != (want.Write && owned[dir]) || err != nil && sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s: the peer can write: %v, its own: %v; asked: %v", dir, want.Write, owned[dir], err)
		}
		if err := try(grant(t, Policy{}, User(0, 0, nil, 1)), dir, true); err != nil { // the control
			t.Errorf("%s: root: %v", dir, err)
		}
	}
	if len(dirs) != 6*15*3 || count[can{}] < 50 || count[can{true, false}] < 10 || count[can{true, true}] < 10 {
		t.Errorf("%d directories, too few of a kind: %v", len(dirs), count)
	}
}

// TestCheckBindIsWhatTheUserCan does the same with regular files. What is neither a file nor a
// directory is refused, also to root.
func TestCheckBindIsWhatTheUserCan(t *testing.T) {
	need.Root(t, "it becomes others")
	base := openTemp(t)
	var files []string
	owned := map[string]bool{}
	for _, owner := range [][2]int{{testUID, testGID}, {testUID, 0}, {0, testGroup}, {0, 0}} {
		for _, mode := range []uint32{0o600, 0o400, 0o200, 0o640, 0o060, 0o604, 0o006, 0o755, 0} {
			file := filepath.Join(base, fmt.Sprintf("file%d-%d-%o", owner[0], owner[1], mode))
			if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chown(file, owner[0], owner[1]), unix.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
			owned[file] = owner[0] == testUID && owner[1] != 0
		}
	}
	g, root := grant(t, policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID} })), testCaller), grant(t, Policy{}, User(0, 0, nil, 1))
	try := func(g Grant, path string, write bool) error {
		d, err := g.CheckBind(t.Context(), path, write)
		if err != nil {
			return err
		}
		return d.Close()
	}
	count := map[can]int{}
	for file, want := range asPeer(t, files) {
		count[want]++
		if err := try(g, file, false); (err == nil) != want.Read || err != nil && sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s: the peer can read: %v; asked: %v", file, want.Read, err)
		}
		if err := try(g, file, true); (err == nil) != (want.Write && owned[file]) || err != nil && sbxerr.Of(err) != sbxerr.Peer {
			t.Errorf("%s: the peer can write: %v, its own: %v; asked: %v", file, want.Write, owned[file], err)
		}
		if err := try(root, file, true); err != nil { // the control
			t.Errorf("%s: root: %v", file, err)
		}
	}
	if count[can{}] < 5 || count[can{true, false}] < 5 || count[can{true, true}] < 5 {
		t.Errorf("too few of a kind: %v", count)
	}
	if err := errors.Join(unix.Mkfifo(base+"/fifo", 0o666), unix.Mknod(base+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "device"} {
		refused(t, name, try(root, base+"/"+name, false), sbxerr.Workspace, "neither a directory nor a regular file")
	}
}

func TestCheckWorkspaceIdentity(t *testing.T) {
	need.Root(t, "it becomes others")
	dir := filepath.Join(openTemp(t), "d")
	mkdir(t, dir, testUID+7, testGID+7, 0o755)
	g := grant(t, policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID} })), testCaller)
	for name, tt := range map[string]struct {
		g        Grant
		uid, gid uint32
		groups   int
	}{
		"the peer is itself":      {g, testUID, testGID, 1},
		"root is the owner":       {grant(t, Policy{}, User(0, 0, []uint32{5}, 1)), testUID + 7, testGID + 7, 0},
		"the daemon is the owner": {grant(t, Policy{}, System), testUID + 7, testGID + 7, 0},
	} {
		d, err := tt.g.CheckWorkspace(t.Context(), dir, false)
		if err != nil {
			t.Fatal(err)
		}
		if d.UID != tt.uid || d.GID != tt.gid || len(d.Groups) != tt.groups || d.File.Name() != dir {
			t.Errorf("%s: %+v", name, d)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckWorkspaceRefuses(t *testing.T) {
	need.Root(t, "it becomes others")
	base := openTemp(t)
	for _, name := range []string{"own", "other", "covers", "covers/x\\040 y"} {
		mkdir(t, filepath.Join(base, name), testUID, testGID, 0o755)
	}
	if err := errors.Join(
		os.Symlink("own", filepath.Join(base, "link")), os.Symlink(base, filepath.Join(base, "own", "up")),
		os.WriteFile(filepath.Join(base, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	mounted := filepath.Join(base, "covers", "x\\040 y")
	bind(t, filepath.Join(base, "other"), mounted)
	readOnly := filepath.Join(base, "ro")
	mkdir(t, readOnly, testUID, testGID, 0o755)
	bind(t, filepath.Join(base, "own"), readOnly)
	if err := unix.Mount("", readOnly, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	r := rule(func(r *Rule) { r.UIDs = []uint32{testUID} })
	g := grant(t, policy(t, r), testCaller)
	r.Workspaces = []string{filepath.Join(base, "own"), "/proc"}
	narrow := grant(t, policy(t, r), testCaller)
	for _, tt := range []struct {
		g     Grant
		dir   string
		write bool
		code  sbxerr.Code // empty: granted
		want  string
	}{
		{g, base + "/own", true, "", ""},
		{g, base + "/other", true, "", ""},
		{g, base + "/absent", false, sbxerr.Workspace, "does not exist"},
		{g, base + "/file", false, sbxerr.Workspace, "is not a directory"},
		{g, base + "/link", false, sbxerr.Workspace, "symbolic link"},
		{g, base + "/own/up/own", false, sbxerr.Workspace, "symbolic link"},
		{g, fmt.Sprintf("/proc/%d/root", os.Getpid()), false, sbxerr.Workspace, "symbolic link"},
		{g, "/proc/self/cwd", false, sbxerr.Workspace, "symbolic link"},
		{g, base + "/own/../other", false, sbxerr.Workspace, "clean absolute"},
		{g, "own", false, sbxerr.Workspace, "clean absolute"},
		{g, base + "/own\x00", false, sbxerr.Workspace, "clean absolute"},
		{g, base + "/covers", false, sbxerr.Peer, "would be uncovered"},
		{g, mounted, false, "", ""},
		{g, readOnly, false, "", ""},
		{g, readOnly, true, sbxerr.Workspace, "read-only file system"},
		{narrow, base + "/own", true, "", ""},
		{narrow, base + "/other", false, sbxerr.Peer, "lies outside of"},
		{narrow, base + "/own2", false, sbxerr.Peer, "lies outside of"},
		{narrow, fmt.Sprintf("/proc/%d/fd", os.Getpid()), false, sbxerr.Workspace, "the kernel's own"},   // which the daemon's threads may enter
		{narrow, "/proc/1/fd", false, sbxerr.Peer, "may not read"},                                       // roots never widen
		{grant(t, Policy{}, User(0, 0, nil, 1)), "/proc/self", false, sbxerr.Workspace, "symbolic link"}, // a link itself
		{Grant{}, base + "/own", false, sbxerr.Peer, "nothing is granted"},
		{grant(t, Policy{}, User(0, 0, nil, 1)), base + "/covers", true, "", ""},
	} {
		err := try(tt.g, tt.dir, tt.write)
		if tt.code == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.dir, err)
			}
			continue
		}
		refused(t, tt.dir, err, tt.code, tt.want)
	}
}

// A user follows the remedy for a directory of the user's own with the user's own rights.
func TestWorkspaceRemedies(t *testing.T) {
	need.Root(t, "it becomes another user")
	base := openTemp(t)
	g := grant(t, policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID} })), testCaller)
	for name, tt := range map[string]struct {
		gid  int
		mode uint32
	}{"group of root": {0, 0o755}, "not writable": {testGID, 0o555}, "not readable": {testGID, 0}} {
		dir := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
		mkdir(t, dir, testUID, tt.gid, tt.mode)
		err := try(g, dir, true)
		remedy := sbxerr.RemedyOf(err)
		_, line, found := strings.Cut(remedy, ": ")
		line, _, _ = strings.Cut(line, ",")
		if err == nil || !found {
			t.Errorf("%s: %v, %q", name, err, remedy)
			continue
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testGID}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v: %s", name, line, err, out)
		}
		if err := try(g, dir, true); err != nil {
			t.Errorf("%s: after %s: %v", name, line, err)
		}
	}
}

func bind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestBecomeTouchesFilesAlone: a thread with the peer's real or effective ids
// could be killed by the peer, and a thread that kept the peer's ids for files
// must not serve anybody else.
func TestBecomeTouchesFilesAlone(t *testing.T) {
	need.Root(t, "it becomes others")
	for range 20 {
		onThrowawayThread(func() {
			err := become(testCaller)
			ruid, euid, suid := unix.Getresuid()
			if err != nil || ruid != 0 || euid != 0 || suid != 0 || unix.Gettid() == unix.Getpid() {
				t.Errorf("%v; the ids of thread %d are %d, %d, %d", err, unix.Gettid(), ruid, euid, suid)
			}
		})
	}
	dir := openTemp(t)
	g := grant(t, policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID} })), testCaller)
	for range 20 {
		if err := try(g, dir, false); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatal(tasks, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for own := fmt.Sprint(testUID); ; time.Sleep(time.Millisecond) { // a thread takes a moment to end
		left := 0
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err == nil && strings.Contains(string(data), own) {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads still have the peer's ids", left)
		}
	}
}

// TestNoAnswer: with every place of a user taken, as by a file system that
// hangs, that user is refused in time and another is not.
func TestNoAnswer(t *testing.T) {
	need.Root(t, "it becomes others")
	dir := openTemp(t)
	p := policy(t, rule(func(r *Rule) { r.UIDs = []uint32{testUID, testUID + 1} }))
	g, other := grant(t, p, testCaller), grant(t, p, User(testUID+1, 1, nil, 1))
	var leave []func()
	for range placesPerUser {
		l, err := p.gates.enter(t.Context(), testUID)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := g.CheckWorkspace(ctx, dir, false)
	refused(t, "no place", err, sbxerr.Deadline)
	if err := try(other, dir, false); err != nil {
		t.Errorf("another user: %v", err)
	}
	canceled, stop := context.WithCancel(t.Context())
	stop()
	_, err = g.CheckWorkspace(canceled, dir, false)
	refused(t, "canceled", err, sbxerr.Canceled)
	for _, l := range leave {
		l()
	}
	if err := try(g, dir, false); err != nil {
		t.Errorf("with a place: %v", err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := try(g, dir, false); err != nil {
				t.Errorf("a burst: %v", err)
			}
		})
	}
	all.Wait()
	p.gates.mu.Lock()
	defer p.gates.mu.Unlock()
	if len(p.gates.busy) != 0 {
		t.Errorf("%d users are remembered", len(p.gates.busy))
	}
}

func TestMountBelow(t *testing.T) {
	const table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"30 22 0:30 / /srv/a\\040b/c rw shared:1 - tmpfs x rw\n" +
		"31 22 0:31 / /srv/back\\134slash rw - tmpfs x rw\n"
	for path, want := range map[string]string{
		"/srv/a b": "/srv/a b/c", "/srv/a b/c": "", "/srv/a": "", "/srv": "/srv/a b/c", "/": "/srv/a b/c", "/srv/back": "", `/srv/back\slash`: "", "/home": "",
	} {
		if got, err := mountBelow(strings.NewReader(table), path); err != nil || got != want {
			t.Errorf("below %q: %q, %v, want %q", path, got, err, want)
		}
	}
	for _, bad := range []string{"22 1 8:1\n", "\n", strings.Repeat("x", 2<<20)} {
		if _, err := mountBelow(strings.NewReader(bad), "/srv"); err == nil {
			t.Errorf("a table of %d bytes that is none", len(bad))
		}
	}
}

func FuzzMountBelow(f *testing.F) {
	f.Add("30 22 0:30 / /srv/a\\040b rw - tmpfs x rw\n", "/srv")
	f.Add("30 22 0:30 / /\\0 rw - \\", "/")
	f.Fuzz(func(t *testing.T, table, path string) {
		got, err := mountBelow(strings.NewReader(table), path)
		if got != "" && (err != nil || got == path || !within(got, path)) {
			t.Errorf("below %q: %q, %v", path, got, err)
		}
	})
}

func BenchmarkCheckWorkspace(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "caisson-peer-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.Remove(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	p, err := NewPolicy([]Rule{rule(func(r *Rule) { r.UIDs = []uint32{testUID} })})
	if err != nil {
		b.Fatal(err)
	}
	g, err := p.Grant(testCaller)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := try(g, dir, false); err != nil {
			b.Fatal(err)
		}
	}
}
