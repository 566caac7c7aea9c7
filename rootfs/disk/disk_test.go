package disk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/tests/need"
)

// made is a disk of a test, which is gone at its end.
type made struct{ file, point string }

func attach(t *testing.T, m *disk.Maker, size disk.Size) made {
	t.Helper()
	dir := t.TempDir()
	d := made{filepath.Join(dir, "image"), filepath.Join(dir, "point")}
	if err := os.Mkdir(d.point, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Detach(d.file, d.point); err != nil {
			t.Error(err)
		}
	})
	if err := m.Attach(d.file, d.point, size); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDiskIsBounded(t *testing.T) {
	need.Root(t, "it mounts a file system")
	need.Tools(t, "mkfs.ext4")
	var m disk.Maker
	for _, how := range []string{"by mkfs.ext4", "as another was made"} {
		t.Run(how, func(t *testing.T) {
			d := attach(t, &m, disk.Size{Bytes: 32 << 20, Inodes: 1024})
			if st, err := os.Stat(d.file); err != nil || st.Size() != 32<<20 {
				t.Fatal(err)
			}
			var fs unix.Statfs_t
			if err := unix.Statfs(d.point, &fs); err != nil || fs.Flags&(unix.ST_NOSUID|unix.ST_NODEV) != unix.ST_NOSUID|unix.ST_NODEV {
				t.Fatalf("mounted with the flags %#x: %v", fs.Flags, err)
			}
			fillFiles(t, d)
			fillBytes(t, d)
		})
	}
}

func fillFiles(t *testing.T, d made) {
	t.Helper()
	if use := useOf(t, d); use.Full() || use.Inodes != 1024 {
		t.Fatalf("an empty disk: %+v", use)
	}
	var err error
	n := 0
	for ; err == nil && n < 2000; n++ {
		err = os.WriteFile(filepath.Join(d.point, fmt.Sprint("f", n)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) || !useOf(t, d).Full() {
		t.Fatalf("file %d: %v, %+v", n, err, useOf(t, d))
	}
	for i := range n {
		if err := os.Remove(filepath.Join(d.point, fmt.Sprint("f", i))); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func fillBytes(t *testing.T, d made) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.point, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if useOf(t, d).Full() {
		t.Fatalf("full after the files were removed: %+v", useOf(t, d))
	}
	wrote := 0
	for err == nil && wrote < 64<<20 {
		var n int
		n, err = f.Write(make([]byte, 1<<20))
		wrote += n
	}
	if !errors.Is(err, unix.ENOSPC) || !useOf(t, d).Full() {
		t.Fatalf("%d bytes written: %v, %+v", wrote, err, useOf(t, d))
	}
}

func useOf(t *testing.T, d made) disk.Use {
	t.Helper()
	use, err := disk.UseOf(d.point)
	if err != nil {
		t.Fatal(err)
	}
	return use
}

// An unused disk takes little of the host's, and a removed one nothing.
func TestDiskGoesWhole(t *testing.T) {
	need.Root(t, "it mounts a file system")
	need.Tools(t, "mkfs.ext4")
	var m disk.Maker
	d := attach(t, &m, disk.Size{Bytes: 2 << 30})
	var st unix.Stat_t
	if err := unix.Stat(d.file, &st); err != nil || st.Blocks*512 > 1<<20 || st.Mode&0o777 != 0o600 {
		t.Fatalf("an unused disk takes %d bytes, mode %#o: %v", st.Blocks*512, st.Mode, err)
	}
	if len(devicesOf(t, d.file)) != 1 {
		t.Fatal("the loop device is not found while it is there")
	}
	if err := disk.Detach(d.file, d.point); err != nil {
		t.Fatal(err)
	}
	mounted, err := mount.IsPoint(d.point)
	if _, gone := os.Lstat(d.file); err != nil || mounted || !errors.Is(gone, os.ErrNotExist) {
		t.Errorf("after its removal: mounted %v, file %v, %v", mounted, gone, err)
	}
	for end := time.Now().Add(10 * time.Second); len(devicesOf(t, d.file)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("devices stay: %q", devicesOf(t, d.file))
		}
	}
	if err := disk.Detach(d.file, d.point); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func devicesOf(t *testing.T, file string) (found []string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), file) {
			found = append(found, name)
		}
	}
	return found
}

// A failed attachment leaves nothing.
func TestNothingStaysOfAFailedDisk(t *testing.T) {
	need.Root(t, "it configures a loop device")
	need.Tools(t, "mkfs.ext4")
	var m disk.Maker
	file := filepath.Join(t.TempDir(), "image")
	err := m.Attach(file, filepath.Join(t.TempDir(), "absent"), disk.Size{Bytes: 16 << 20})
	if sbxerr.Of(err) != sbxerr.Disk {
		t.Errorf("attached at no directory: %v", err)
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
}

func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		size disk.Size
		ok   bool
	}{
		{disk.Size{Bytes: 16 << 20}, true}, {disk.Size{Bytes: 16<<20 - 1}, false}, {disk.Size{}, false}, {disk.Size{Bytes: -1}, false},
		{disk.Size{Bytes: 1 << 40}, true}, {disk.Size{Bytes: 1<<40 + 1}, false},
		{disk.Size{Bytes: 16 << 20, Inodes: 4096}, true}, {disk.Size{Bytes: 16 << 20, Inodes: 4097}, false},
		{disk.Size{Bytes: 16 << 20, Inodes: 255}, false}, {disk.Size{Bytes: 16 << 20, Inodes: -1}, false},
	} {
		if err := tt.size.Check(); (err == nil) != tt.ok || err != nil && sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%+v: %v", tt.size, err)
		}
	}
}

// Both bounds of the inodes can be had.
func TestBoundsCanBeMade(t *testing.T) {
	need.Root(t, "it mounts a file system")
	need.Tools(t, "mkfs.ext4")
	var m disk.Maker
	for _, size := range []disk.Size{{Bytes: 16 << 20, Inodes: 256}, {Bytes: 16 << 20, Inodes: 4096}, {Bytes: 16<<20 + 1}} {
		if use := useOf(t, attach(t, &m, size)); use.Full() || use.Inodes < size.Inodes {
			t.Errorf("%+v: %+v", size, use)
		}
	}
}
