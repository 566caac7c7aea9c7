package sockmem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/need"
)

// scene is a parent cgroup with a bpffs beside it.
type scene struct{ group, pins string }

var scenes atomic.Int64

func newScene(t testing.TB) scene {
	t.Helper()
	need.Root(t, "it makes cgroups and loads BPF programs")
	root := "/sys/fs/cgroup/unified"
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		root = "/sys/fs/cgroup"
	}
	s := scene{group: filepath.Join(root, fmt.Sprintf("caisson-sockmem-%d-%d", os.Getpid(), scenes.Add(1))), pins: t.TempDir()}
	if err := os.Mkdir(s.group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.rmdir(t, s.group) })
	if err := unix.Mount("caisson", s.pins, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(Remove(s.pins), unix.Unmount(s.pins, 0)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s scene) rmdir(t testing.TB, dir string) {
	var err error
	for range 100 { // until its processes are gone
		if err = os.Remove(dir); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error(err)
}

// box makes the cgroup of a sandbox.
func (s scene) box(t testing.TB, name string) (dir string, id uint64) {
	t.Helper()
	dir = filepath.Join(s.group, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.rmdir(t, dir) })
	id, err := ID(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, id
}

func (s scene) open(t testing.TB) *Watch {
	t.Helper()
	w, err := Open(t.Context(), s.group, s.pins)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// holder is this program again, in a cgroup: what it holds lasts until the test ends.
func holder(t testing.TB, dir, what string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOLD="+what, "HOLD_GROUP="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	answer := make([]byte, 64)
	n, err := out.Read(answer)
	if err != nil || !strings.HasPrefix(string(answer[:n]), "held") {
		t.Fatalf("hold %s: %q, %v", what, answer[:n], err)
	}
}

// TestMain is also the process that holds sockets.
func TestMain(m *testing.M) {
	what := os.Getenv("HOLD")
	if what == "" {
		os.Exit(m.Run())
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("HOLD_GROUP"), "cgroup.procs"), []byte("0"), 0); err != nil {
		fmt.Println(err)
		return
	}
	if err := holds[what](); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held")
	time.Sleep(time.Minute)
}

const (
	many     = 100
	corked   = 60_000
	received = 10_000
)

var holds = map[string]func() error{
	"twenty": func() error {
		for range 20 {
			if _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err != nil {
				return err
			}
		}
		return nil
	},
	"idle": func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); return err },
	"corked": func() error {
		for range many {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
			if err := unix.Sendto(fd, make([]byte, corked), unix.MSG_MORE, to); err != nil {
				return err
			}
		}
		return nil
	},
	"unaccepted": func() error {
		var c net.ListenConfig
		c.SetMultipathTCP(false) // no sandbox has it, and its connections are not tagged
		l, err := c.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		for range many {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			if _, err := c.Write(make([]byte, received)); err != nil {
				return err
			}
		}
		return nil
	},
}

// Each sandbox's sockets are added up apart, below its own cgroup too.
func TestLook(t *testing.T) {
	s := newScene(t)
	w := s.open(t)
	boxes := map[string]uint64{}
	for _, what := range []string{"idle", "corked", "unaccepted"} {
		dir, id := s.box(t, what)
		below := filepath.Join(dir, "command")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.rmdir(t, below) })
		holder(t, below, what)
		boxes[what] = id
	}
	held, sockets, err := w.Look(false)
	if err != nil {
		t.Fatal(err)
	}
	if least := 1 + many + 1 + 2*many; sockets < least {
		t.Errorf("%d sockets, want %d", sockets, least)
	}
	if h := held[boxes["idle"]]; h != (Held{Sockets: 1}) {
		t.Errorf("an idle socket holds %+v", h)
	}
	if h := held[boxes["corked"]]; h.Uncharged < many*corked || h.Sockets < many {
		t.Errorf("corked datagrams: %+v", h)
	}
	if h := held[boxes["unaccepted"]]; h.Uncharged < many*(received+unacceptedSize) {
		t.Errorf("connections: %+v", h)
	}
}

// Sockets that are made while there is no daemon are seen by the next one.
func TestOpenAgain(t *testing.T) {
	s := newScene(t)
	dir, id := s.box(t, "a")
	if err := s.open(t).Close(); err != nil {
		t.Fatal(err)
	}
	holder(t, dir, "corked")
	begin := time.Now()
	w := s.open(t)
	t.Logf("opened again in %s", time.Since(begin))
	held, _, err := w.Look(false)
	if err != nil || held[id].Uncharged < many*corked {
		t.Errorf("%v, %v", held, err)
	}
}

// Programs of another version are taken away.
func TestOpenAnotherVersion(t *testing.T) {
	s := newScene(t)
	if err := s.open(t).Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(s.pins, pinCreate+"00000000")
	if err := os.Rename(filepath.Join(s.pins, pinCreate+revision()), other); err != nil {
		t.Fatal(err)
	}
	s.open(t) // which proves that the new ones count
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the others are left: %v", err)
	}
}

// A group that was removed and made again gets a program of its own.
func TestOpenForAnotherGroup(t *testing.T) {
	s := newScene(t)
	s.open(t)
	if err := os.Remove(s.group); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.group, 0o755); err != nil {
		t.Fatal(err)
	}
	w := s.open(t)
	dir, id := s.box(t, "a")
	holder(t, dir, "corked")
	if held, _, err := w.Look(false); err != nil || held[id].Uncharged == 0 {
		t.Errorf("%v, %v", held, err)
	}
}

// The next socket ends Wait, and nothing else does.
func TestWait(t *testing.T) {
	s := newScene(t)
	w := s.open(t)
	dir, _ := s.box(t, "a")
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) { // the kernel frees those of the proof later
		_, sockets, err := w.Look(true)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d sockets, %v", sockets, err)
		}
		if sockets == 0 {
			break
		}
	}
	woken := make(chan error, 1)
	go func() { woken <- w.Wait(t.Context()) }()
	select {
	case err := <-woken:
		t.Fatalf("woken without a socket: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	holder(t, dir, "idle")
	select {
	case err := <-woken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("not woken by a socket")
	}
	if _, sockets, err := w.Look(true); err != nil || sockets != 1 {
		t.Errorf("%d sockets, %v", sockets, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// Nothing is left of a watch that is removed.
func TestRemove(t *testing.T) {
	s := newScene(t)
	s.open(t)
	for range 2 {
		if err := Remove(s.pins); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(s.pins)
	left = slices.DeleteFunc(left, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".debug") })
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if err := Remove(filepath.Join(s.pins, "absent")); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	s := newScene(t)
	if err := Check(t.Context(), filepath.Dir(s.group)); err != nil {
		t.Error(err)
	}
	if err := Check(t.Context(), filepath.Join(s.group, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without cgroup2: %v", err)
	}
}

// Programs that load and count nothing are found out.
func TestProve(t *testing.T) {
	s, other := newScene(t), newScene(t)
	w := s.open(t)
	for _, group := range []string{s.group, other.group, s.group} {
		w.group = group
		err := w.prove(t.Context())
		if group == s.group && err != nil {
			t.Error(err)
		}
		if group == other.group && (err == nil || !strings.Contains(err.Error(), ": 0 were counted")) {
			t.Errorf("sockets that nobody tags: %v", err)
		}
		if _, err := os.Stat(filepath.Join(group, proofGroup)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the group is left: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.prove(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}

// What processes of sandboxes do takes time, that of the daemon does not count.
func TestWorked(t *testing.T) {
	s := newScene(t)
	w := s.open(t)
	dir, _ := s.box(t, "a")
	before, err := w.Worked()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.Worked(); err != nil || again != before {
		t.Errorf("%s, then %s, %v", before, again, err)
	}
	holder(t, dir, "corked")
	if after, err := w.Worked(); err != nil || after <= before {
		t.Errorf("%s, then %s, %v", before, after, err)
	}
	for _, text := range []string{"", "usage_usec\n", "usage_usec x\n", "user_usec 1\n"} {
		if _, err := parseWorked(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestFind(t *testing.T) {
	word := &btf.Int{Name: "u32", Size: 4}
	inner := &btf.Struct{Name: "queue", Size: 8, Members: []btf.Member{{Name: "next", Type: word}, {Name: "qlen", Type: word, Offset: 32}}}
	union := &btf.Union{Size: 8, Members: []btf.Member{{Name: "queue", Type: inner}}}
	sock := []btf.Member{{Name: "first", Type: word}, {Type: union, Offset: 64}, {Name: "flag", Type: word, Offset: 128, BitfieldSize: 1}}
	if at, size, err := find(sock, []string{"queue", "qlen"}); at != 12 || size != 4 || err != nil {
		t.Errorf("at %d, %d bytes, %v", at, size, err)
	}
	for _, path := range [][]string{{"absent"}, {"queue", "absent"}, {"first", "qlen"}, {"flag"}} {
		if _, _, err := find(sock, path); err == nil {
			t.Errorf("%v was found", path)
		}
	}
}

// What a look costs without a socket, and with 20 in each of 50 processes.
func BenchmarkLook(b *testing.B) {
	s := newScene(b)
	w := s.open(b)
	dir, _ := s.box(b, "a")
	b.Run("none", func(b *testing.B) { benchmarkLook(b, w) })
	for range 50 {
		holder(b, dir, "twenty")
	}
	b.Run("1000", func(b *testing.B) { benchmarkLook(b, w) })
}

func benchmarkLook(b *testing.B, w *Watch) {
	for b.Loop() {
		if _, _, err := w.Look(false); err != nil {
			b.Fatal(err)
		}
	}
}
