package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// Size bounds a disk.
type Size struct {
	Bytes  int64
	Inodes int64 // files and directories; 0 is one for each 16 KiB
}

// Bounds of a disk. Below the least size hardly more than the tables of ext4 fits.
const (
	MinBytes  = 16 << 20
	MaxBytes  = 1 << 40
	MinInodes = 256

	blockSize     = 4096
	bytesPerInode = 16 << 10 // as mke2fs(8) has it
)

// Filled returns s with a number of inodes. No size stays none.
func (s Size) Filled() Size {
	if s.Inodes == 0 && s.Bytes != 0 {
		s.Inodes = max(MinInodes, s.Bytes/bytesPerInode)
	}
	return s
}

// Check refuses a size that no file system of this kind can have.
func (s Size) Check() error {
	const op = "disk.check"
	switch {
	case s.Bytes < MinBytes || s.Bytes > MaxBytes:
		return sbxerr.New(sbxerr.Limits, op, "a disk of %d bytes: give %d (16M) to %d (1T), such as 2G", s.Bytes, MinBytes, MaxBytes)
	case s.Inodes != 0 && (s.Inodes < MinInodes || s.Inodes > s.Bytes/blockSize):
		return sbxerr.New(sbxerr.Limits, op, "a disk of %d bytes with %d inodes: give %d to %d, one for each block of %d bytes", s.Bytes, s.Inodes, MinInodes, s.Bytes/blockSize, blockSize)
	}
	return nil
}

// Attach makes a disk in a new file, and mounts it at point, an existing directory of the
// daemon's. Only root can enter its root directory. On an error nothing stays.
//
// The kernel takes the loop device away with the last mount of the disk, however the daemon
// ends.
func (m *Maker) Attach(file, point string, size Size) error {
	return attachMade(file, point, target{durable: m.Durable}, func() (*os.File, error) { return m.create(file, size.Filled()) })
}

// Mount mounts a durable disk that Attach of a Maker made, and that is mounted nowhere: the host
// was started anew, or its point went with a mount namespace. Where a loop device has the file
// still, that is taken: two file systems on one file would destroy each other.
func Mount(file, point string) error {
	return sbxerr.Wrap(sbxerr.Disk, "disk.mount", mountMade(file, point))
}

func mountMade(file, point string) (err error) {
	image, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	device, err := loopOf(image)
	if err == nil && device == nil {
		device, err = attachLoop(image)
	}
	if err != nil {
		return err
	}
	return errors.Join(mountAt(device.Name(), point, target{durable: true}), device.Close())
}

// Unmount takes a durable disk off point. What was written is on the host's disk then.
func Unmount(point string) error {
	return sbxerr.Wrap(sbxerr.Disk, "disk.unmount", errors.Join(syncFS(point), mount.Detach(point)))
}

// target is how a disk is mounted.
type target struct {
	ids     *mount.UserNS // as which the mount shows the ids of the disk; nil: as they are
	durable bool          // it is to outlive the boot
}

// AttachCopy is Attach of a copy of the file saved, which Save wrote. The mount shows its ids
// as ids maps them.
func AttachCopy(ctx context.Context, saved, file, point string, ids *mount.UserNS) error {
	return attachMade(file, point, target{ids: ids}, func() (*os.File, error) { return copyFile(ctx, saved, file) })
}

func attachMade(file, point string, as target, create func() (*os.File, error)) (err error) {
	defer func() {
		if err != nil {
			err = sbxerr.Wrap(sbxerr.Disk, "disk.attach", errors.Join(err, Detach(file, point)))
		}
	}()
	image, err := create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	device, err := attachLoop(image)
	if err != nil {
		return err
	}
	return errors.Join(mountAt(device.Name(), point, as), device.Close())
}

// mountAt mounts the device. The table of inodes stays as it is until it is used: the kernel
// would fill it behind the sandbox's back.
func mountAt(device, point string, as target) error {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open ext4: %w", err)
	}
	err = configure(fs, device, as.durable)
	if err == nil {
		err = attach(fs, point, as.ids)
	}
	return errors.Join(err, unix.Close(fs))
}

func configure(fs int, device string, durable bool) error {
	barrier := "0"
	if durable {
		barrier = "1"
	}
	for _, o := range [][2]string{{"source", device}, {"barrier", barrier}, {"errors", "remount-ro"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return fmt.Errorf("set %s: %w", o[0], err)
		}
	}
	flags := []string{"noinit_itable"}
	if durable {
		flags = append(flags, "discard") // what is removed takes no room on the host any more
	}
	for _, name := range flags {
		if err := unix.FsconfigSetFlag(fs, name); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("mount %q: %w", device, err)
	}
	return nil
}

// OpenSaved opens the root of the disk in a file that Release moved, to read it. It is mounted
// nowhere, and goes with the last file that is open on it.
func OpenSaved(file string) (root *os.File, err error) {
	root, err = openSaved(file)
	return root, sbxerr.Wrap(sbxerr.Disk, "disk.open", err)
}

func openSaved(file string) (_ *os.File, err error) {
	image, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	root, err := openRoot(image, unix.MOUNT_ATTR_RDONLY)
	return root, errors.Join(err, image.Close())
}

// AttachSaved mounts the disk in a file that nobody writes to at point, an existing directory of the
// daemon's, to read it. The mount shows its ids as ids maps them, and keeps the file.
func AttachSaved(file, point string, ids *mount.UserNS) error {
	root, err := openSaved(file)
	if err == nil {
		if err = ids.MapMount(int(root.Fd())); err == nil {
			err = unix.MoveMount(int(root.Fd()), "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		err = errors.Join(err, root.Close())
	}
	return sbxerr.Wrap(sbxerr.Disk, "disk.attach", err)
}

// openRoot mounts the disk in image nowhere, with these attributes.
func openRoot(image *os.File, attributes int) (_ *os.File, err error) {
	device, err := attachLoop(image)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open ext4: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fs)) }()
	if attributes&unix.MOUNT_ATTR_RDONLY != 0 {
		err = unix.FsconfigSetFlag(fs, "ro")
	}
	if err := errors.Join(err, configure(fs, device.Name(), false)); err != nil {
		return nil, err
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(tree), image.Name()), nil
}

// Fill makes a disk in a new file, into which write puts files below dir. It is mounted nowhere, so
// that nothing but the file stays of a daemon that is killed. On an error not even that does.
func (m *Maker) Fill(file string, size Size, write func(dir string) error) (use Use, err error) {
	image, err := m.create(file, size.Filled())
	if err != nil {
		return Use{}, sbxerr.Wrap(sbxerr.Disk, "disk.fill", err)
	}
	defer func() {
		if err = errors.Join(err, image.Close()); err != nil {
			err = errors.Join(err, owndir.Unlink(file))
		}
	}()
	root, err := openRoot(image, 0)
	if err != nil {
		return Use{}, sbxerr.Wrap(sbxerr.Disk, "disk.fill", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	dir := fmt.Sprintf("/proc/self/fd/%d/.", root.Fd())
	if err := write(dir); err != nil {
		return Use{}, err
	}
	if err := sbxerr.Wrap(sbxerr.Disk, "disk.fill", syncFS(dir)); err != nil {
		return Use{}, err
	}
	return UseOf(dir)
}

func attach(fs int, point string, ids *mount.UserNS) error {
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	err = unix.Fchmodat(tree, ".", 0o700, 0)
	if err == nil && ids != nil {
		err = ids.MapMount(tree)
	}
	if err == nil {
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return errors.Join(err, unix.Close(tree))
}

// Detach takes the disk off point, and removes point and file. Absent is success. The file's
// room is free when the last process that uses the disk has ended.
func Detach(file, point string) error {
	return errors.Join(mount.RemovePointBehind(point), sbxerr.Wrap(sbxerr.Disk, "disk.detach", owndir.Unlink(file)))
}

// Clear removes what is at the top of the disk at point under the names that match, with all
// below it.
func Clear(point string, match func(name string) bool) error {
	entries, err := os.ReadDir(point)
	for _, e := range entries {
		if match(e.Name()) {
			err = errors.Join(err, owndir.RemoveTree(filepath.Join(point, e.Name())))
		}
	}
	return sbxerr.Wrap(sbxerr.Disk, "disk.clear", err)
}
