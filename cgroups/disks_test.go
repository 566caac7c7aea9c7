package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

// fakeDevices is a /sys with a disk of two partitions, a mapped device, and a btrfs on the
// second partition and a disk of its own.
func fakeDevices(t *testing.T) sysfs {
	t.Helper()
	root := t.TempDir()
	for file, content := range map[string]string{
		"devices/pci/sda/dev": "8:0\n", "devices/pci/sda/sda1/dev": "8:1\n", "devices/pci/sda/sda1/partition": "1\n",
		"devices/pci/sda/sda2/dev": "8:2\n", "devices/pci/sda/sda2/partition": "2\n",
		"devices/pci/sdb/dev": "8:16\n", "devices/virtual/block/dm-0/dev": "252:0\n",
	} {
		file = filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"dev/block/8:0": "devices/pci/sda", "dev/block/8:1": "devices/pci/sda/sda1", "dev/block/8:2": "devices/pci/sda/sda2",
		"dev/block/8:16": "devices/pci/sdb", "dev/block/252:0": "devices/virtual/block/dm-0",
		"fs/btrfs/one/devices/sda2": "devices/pci/sda/sda2", "fs/btrfs/one/devices/sdb": "devices/pci/sdb",
	} {
		link = filepath.Join(root, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(root, to), link)); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs(root)
}

func TestWholeDisk(t *testing.T) {
	s := fakeDevices(t)
	for number, want := range map[string]string{"8:0": "8:0", "8:1": "8:0", "8:2": "8:0", "8:16": "8:16", "252:0": "252:0"} {
		if got, err := s.whole(number); err != nil || got != want {
			t.Errorf("disk of %s: %q, %v; want %q", number, got, err, want)
		}
	}
	if got, err := s.whole("9:9"); err == nil {
		t.Errorf("disk of a device that is not there: %q", got)
	}
	for _, member := range []string{"8:2", "8:16"} {
		if got, err := s.btrfs(member); err != nil || !slices.Equal(got, []string{"8:0", "8:16"}) {
			t.Errorf("disks of the btrfs on %s: %q, %v", member, got, err)
		}
	}
	if got, err := s.btrfs("8:1"); err == nil {
		t.Errorf("disks of a btrfs that is not there: %q", got)
	}
}

// A directory on a device has the disk of that device; memory has none; a file system without
// a device is refused.
func TestDisks(t *testing.T) {
	dir, err := os.Getwd() // a temporary directory is in memory on many hosts
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if unix.Major(st.Dev) == 0 {
		need.Missing(t, "the source on a block device")
	}
	memory, proc := "/dev/shm", "/proc"
	got, err := Disks(dir, dir, memory)
	if err != nil || got == "" {
		t.Fatalf("disks of %s: %q, %v", dir, got, err)
	}
	whole := filepath.Join("/sys/dev/block", got)
	if _, err := os.Stat(filepath.Join(whole, "partition")); err == nil {
		t.Errorf("disk %s of %s is a partition", got, dir)
	}
	if own := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)); own != got {
		if _, err := os.Stat(filepath.Join(whole, filepath.Base(target(t, own)))); err != nil {
			t.Errorf("disk %s of %s, which is on %s", got, dir, own)
		}
	}
	if err := CheckWrites("/dev/shm"); err != nil {
		t.Errorf("writes to memory: %v", err)
	}
	for _, dir := range []string{"/proc", dir + "/absent"} {
		if err := CheckWrites(dir); sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("writes to %s: %v; want %s", dir, err, sbxerr.Limits)
		}
	}
	for name, dirs := range map[string][]string{"memory alone": {memory}, "no device": {dir, proc}, "absent": {dir + "/absent"}} {
		if got, err := Disks(dirs...); sbxerr.Of(err) != sbxerr.Limits {
			t.Errorf("%s: %q, %v; want %s", name, got, err, sbxerr.Limits)
		}
	}
}

func target(t *testing.T, number string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join("/sys/dev/block", number))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
