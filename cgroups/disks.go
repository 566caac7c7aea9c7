package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// DisksOf returns Disks, and refuses dirs with which the rates of l would not hold.
func (l Limits) DisksOf(dirs []string) (string, error) {
	if l.IOWriteBPS != 0 {
		if err := CheckWrites(dirs...); err != nil {
			return "", err
		}
	}
	return Disks(dirs...)
}

// Disks returns the whole disks that hold the files of dirs, as MAJOR:MINOR, sorted and
// separated by spaces. Of a device mapper or RAID device it returns that device. Directories
// in memory have no disk. A file system whose disks cannot be told is refused
// (sbxerr.Limits), as are dirs without any disk.
func Disks(dirs ...string) (string, error) {
	const op = "cgroups.disks"
	var found []string
	for _, dir := range dirs {
		disks, err := disksOf(dir)
		if err != nil {
			return "", sbxerr.WithRemedy(sbxerr.Limits, op, fmt.Errorf("bound I/O with %q: %w", dir, err),
				"set no I/O rate, or use directories on a local disk")
		}
		found = append(found, disks...)
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) == 0 {
		return "", sbxerr.WithRemedy(sbxerr.Limits, op, fmt.Errorf("bound I/O with %q: all lie in memory, and none on a disk", dirs),
			"set no I/O rate, or use directories on a local disk")
	}
	return strings.Join(found, " "), nil
}

// charged are the file systems whose cached writes the kernel charges to the group of the
// writer, and those in memory (Documentation/admin-guide/cgroup-v2.rst, "Writeback").
var charged = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC}

// CheckWrites refuses dirs on a file system whose cached writes no rate would bound
// (sbxerr.Limits).
func CheckWrites(dirs ...string) error {
	const op = "cgroups.disks"
	for _, dir := range dirs {
		magic, err := fsMagic(dir)
		if err != nil {
			return sbxerr.Wrap(sbxerr.Limits, op, err)
		}
		if !slices.Contains(charged, magic) {
			return sbxerr.WithRemedy(sbxerr.Limits, op, fmt.Errorf("bound writes to %q: the kernel does not tell who wrote to its file system", dir),
				"set no io_write_bps, or use directories on ext4, XFS, Btrfs or F2FS")
		}
	}
	return nil
}

func disksOf(dir string) ([]string, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return nil, &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	if st.Dev_major != 0 {
		disk, err := sysfs("/sys").whole(number(st.Dev_major, st.Dev_minor))
		return []string{disk}, err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return uint64(m.ID) != st.Mnt_id, false })
	if err != nil {
		return nil, err
	}
	if len(mounts) == 0 {
		return nil, fmt.Errorf("find mount %d: it is not in the daemon's mount namespace", st.Mnt_id)
	}
	switch m := mounts[0]; m.FSType {
	case "tmpfs", "ramfs":
		return nil, nil
	case "btrfs":
		var source unix.Stat_t
		if err := unix.Stat(m.Source, &source); err != nil {
			return nil, &os.PathError{Op: "stat", Path: m.Source, Err: err}
		}
		return sysfs("/sys").btrfs(number(unix.Major(source.Rdev), unix.Minor(source.Rdev)))
	default:
		return nil, fmt.Errorf("file system %s has no disk that can be told", m.FSType)
	}
}

func number(major, minor uint32) string { return fmt.Sprintf("%d:%d", major, minor) }

// sysfs is where the kernel shows its devices.
type sysfs string

// device returns the directory of a block device.
func (s sysfs) device(number string) (string, error) {
	return filepath.EvalSymlinks(filepath.Join(string(s), "dev/block", number))
}

// whole returns the disk of a partition, and any other device itself.
func (s sysfs) whole(number string) (string, error) {
	dir, err := s.device(number)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err != nil {
		return number, nil
	}
	return readString(filepath.Dir(dir), "dev")
}

// btrfs returns the disks of the file system that has the given device.
func (s sysfs) btrfs(number string) (disks []string, err error) {
	dir, err := s.device(number)
	if err != nil {
		return nil, err
	}
	same, err := filepath.Glob(filepath.Join(string(s), "fs/btrfs/*/devices", filepath.Base(dir)))
	if err != nil || len(same) != 1 {
		return nil, fmt.Errorf("find the disks of the btrfs on %s: %d file systems have it", filepath.Base(dir), len(same))
	}
	devices, err := filepath.Glob(filepath.Join(filepath.Dir(same[0]), "*", "dev"))
	for _, device := range devices {
		var disk string
		if disk, err = readString(filepath.Dir(device), "dev"); err == nil {
			disk, err = s.whole(disk)
		}
		if err != nil {
			return nil, err
		}
		disks = append(disks, disk)
	}
	return disks, err
}
