package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/tests/need"
)

// fleet is root's, which uses no volume. room is what its host has for a disk.
type fleet struct{ room int64 }

func (fleet) Busy() func() { return func() {} }

func (fleet) Grant(context.Context) (peer.Grant, error) {
	return peer.Policy{}.Grant(peer.User(0, 0, nil, 1))
}

func (f fleet) CheckRoom(bytes int64) error {
	if bytes > f.room {
		return sbxerr.New(sbxerr.Disk, "test", "no room")
	}
	return nil
}

func (fleet) AdmitDisk(_ peer.Grant, _ int64, admitted func()) error { admitted(); return nil }

func (fleet) UsersOf(peer.Grant, Key) ([]string, []<-chan struct{}) { return nil, nil }

// newService has a store whose disks are gone at the end of the test.
func newService(t *testing.T, size int64) (*Service, string) {
	t.Helper()
	need.Root(t, "it mounts file systems")
	need.Tools(t, "mkfs.ext4")
	dir := t.TempDir()
	s := NewService(New(dir), fleet{1 << 30}, events.New(events.Options{}), size)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// The kernel frees a loop device some time after the last unmount.
		for end := time.Now().Add(10 * time.Second); hasLoops(t, dir); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("loop devices are left")
			}
		}
	})
	return s, dir
}

func hasLoops(t *testing.T, dir string) bool {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && strings.HasPrefix(string(text), dir)
	})
}

// dataOf is where the files of a volume are.
func dataOf(t *testing.T, s *Service, name string) string {
	t.Helper()
	dir, _, err := s.Dir(Key{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return dir.Name()
}

// TestSize: a volume with a size is full with ENOSPC, and says so, where one without takes the
// same. Its files are there after its disk was taken off, and nothing stays of it.
func TestSize(t *testing.T) {
	s, dir := newService(t, 0)
	size := Size{Bytes: 16 << 20, Inodes: 1000}
	v, err := s.Create(t.Context(), "v", size)
	if err != nil || v.Size != size {
		t.Fatalf("%+v, %v", v, err)
	}
	if _, err := s.Create(t.Context(), "plain", Size{}); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 17<<20)
	if err := os.WriteFile(dataOf(t, s, "plain")+"/large", large, 0o600); err != nil {
		t.Errorf("without a size: %v", err)
	}
	if err := os.WriteFile(dataOf(t, s, "v")+"/kept", []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if full, err := s.Full(0, []string{"v", "plain"}); err != nil || len(full) > 0 {
		t.Errorf("full: %q, %v", full, err)
	}
	if err := os.WriteFile(dataOf(t, s, "v")+"/large", large, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("past the size: %v", err)
	}
	if full, err := s.Full(0, []string{"v", "plain"}); err != nil || !slices.Equal(full, []string{"v"}) {
		t.Errorf("full: %q, %v", full, err)
	}
	if points := s.Points(); len(points) != 1 {
		t.Errorf("mounted at %q, %v", points, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := NewService(New(dir), fleet{}, s.events, 0)
	if text, err := os.ReadFile(dataOf(t, again, "v") + "/kept"); err != nil || string(text) != "kept" {
		t.Errorf("after a restart: %q, %v", text, err)
	}
	if v, err := again.Inspect(t.Context(), "v"); err != nil || v.Size != size {
		t.Errorf("after a restart: %+v, %v", v, err)
	}
	if err := again.Load(); err != nil || again.Sized(0) != size.Bytes || again.Sized(1) != 0 {
		t.Errorf("they have %d and %d, %v", again.Sized(0), again.Sized(1), err)
	}
	for _, name := range []string{"v", "plain"} {
		if err := again.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if left := holds(t, dir); len(left) > 0 || again.Sized(0) != 0 {
		t.Errorf("left %q, and %d of the quota", left, again.Sized(0))
	}
}

// TestUse: a volume with a size says how full it is, attached or not. What is removed takes no
// room on the host any more.
func TestUse(t *testing.T) {
	s, dir := newService(t, 0)
	if _, err := s.Create(t.Context(), "v", Size{Bytes: 64 << 20, Inodes: 1000}); err != nil {
		t.Fatal(err)
	}
	use := func() disk.Use {
		t.Helper()
		v, err := s.Inspect(t.Context(), "v")
		if err != nil || v.Use.Bytes != 64<<20 {
			t.Fatalf("%+v, %v", v, err)
		}
		return v.Use
	}
	sync := func() {
		t.Helper()
		if err := syncFS(place(filepath.Join(dir, "0+v")).point()); err != nil {
			t.Fatal(err)
		}
	}
	empty := use()
	if err := os.WriteFile(dataOf(t, s, "v")+"/large", make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	sync()
	attached, taken := use(), room(t, dir)
	if grown := attached.UsedBytes - empty.UsedBytes; grown < 32<<20 || grown > 33<<20 || attached.UsedInodes != empty.UsedInodes+1 {
		t.Errorf("empty %+v, with 32 MiB %+v", empty, attached)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if detached := use(); detached != attached {
		t.Errorf("attached %+v, detached %+v", attached, detached)
	}
	if err := os.Remove(dataOf(t, s, "v") + "/large"); err != nil {
		t.Fatal(err)
	}
	// The kernel gives blocks back behind the commit that frees them.
	for end := time.Now().Add(20 * time.Second); taken-room(t, dir) < 32<<20; time.Sleep(10 * time.Millisecond) {
		if sync(); time.Now().After(end) {
			t.Fatalf("it took %d of the host's disk, and without its file %d", taken, room(t, dir))
		}
	}
	if again := use(); again.UsedBytes != empty.UsedBytes {
		t.Errorf("empty %+v, and empty again %+v", empty, again)
	}
}

// room is what the image of the volume v of root takes of the host's disk.
func room(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(place(filepath.Join(dir, "0+v")).image(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestPowerLoss: what a program had written to disk (fsync(2)) is there after the host lost its
// power, when the image is as it was while its file system was mounted.
func TestPowerLoss(t *testing.T) {
	s, dir := newService(t, 16<<20)
	if _, err := s.Create(t.Context(), "v", Size{}); err != nil {
		t.Fatal(err)
	}
	writeSynced(t, dataOf(t, s, "v")+"/kept")
	image := place(filepath.Join(dir, "0+v")).image()
	lost, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, lost, 0o600); err != nil {
		t.Fatal(err)
	}
	after := NewService(New(dir), fleet{}, s.events, 0)
	if err := after.Load(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(dataOf(t, after, "v") + "/kept"); err != nil || string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
	if v, err := after.Inspect(t.Context(), "v"); err != nil || v.Use.UsedInodes == 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

func writeSynced(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("kept"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestOneFileSystemOnAnImage: where the mount of a disk is gone and something still uses it, the
// same file system is mounted again.
func TestOneFileSystemOnAnImage(t *testing.T) {
	s, _ := newService(t, 16<<20)
	if _, err := s.Create(t.Context(), "v", Size{}); err != nil {
		t.Fatal(err)
	}
	used, _, err := s.Dir(Key{Name: "v"})
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dataOf(t, s, "v")+"/new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Faccessat(int(used.Fd()), "new", unix.F_OK, 0); err != nil {
		t.Errorf("who used it has another file system: %v", err)
	}
}

// TestSizeIsRefused: sizes that there cannot be, that the host has no room for, and that a volume
// does not have.
func TestSizeIsRefused(t *testing.T) {
	s, dir := newService(t, 32<<20)
	for size, want := range map[Size]sbxerr.Code{
		{Bytes: 1 << 20}:              sbxerr.Limits,
		{Bytes: -1}:                   sbxerr.Limits,
		{Inodes: 1000}:                sbxerr.Limits,
		{Bytes: 2 << 40}:              sbxerr.Limits,
		{Bytes: 2 << 30}:              sbxerr.Disk,
		{Bytes: 16 << 20, Inodes: 10}: sbxerr.Limits,
	} {
		if _, err := s.Create(t.Context(), "v", size); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %s", size, err, want)
		}
	}
	if left := holds(t, dir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if v, err := s.Create(t.Context(), "v", Size{}); err != nil || v.Size != (Size{Bytes: 32 << 20}) {
		t.Fatalf("of the configuration: %+v, %v", v, err)
	}
	for _, same := range []Size{{}, {Bytes: 32 << 20}, {Bytes: 32 << 20, Inodes: 2048}} {
		if _, err := s.Create(t.Context(), "v", same); err != nil {
			t.Errorf("%+v: %v", same, err)
		}
	}
	const want = `volume "v" has 32M and 2048 inodes, and not 16M and 1024 inodes`
	if _, err := s.Create(t.Context(), "v", Size{Bytes: 16 << 20}); !errors.Is(err, sbxerr.VolumeSize) || !strings.Contains(err.Error(), want) {
		t.Errorf("another size: %v", err)
	}
}

// TestSweepOfDisks: what a daemon left that was killed while it made a volume goes, with its disk.
func TestSweepOfDisks(t *testing.T) {
	s, dir := newService(t, 0)
	half := place(filepath.Join(dir, halfMade))
	if err := os.Mkdir(string(half), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := half.fill(&disk.Maker{Durable: true}, Size{Bytes: 16 << 20}, 0, 0); err != nil {
		t.Fatal(err)
	}
	if !hasLoops(t, dir) {
		t.Error("it has no disk: nothing is shown")
	}
	if err := s.Sweep(); err != nil || len(holds(t, dir)) > 0 {
		t.Errorf("%v, left %q", err, holds(t, dir))
	}
}
