package mount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// HostTree is the host's own file system with the mounts in it, as the root of a sandbox
// without isolation.
type HostTree struct {
	Target  string   // existing directory of the daemon's, on a private mount
	Without []string // directories of the daemon's: no mount at or below them is part of the tree
}

// kernelTrees have the kernel's interfaces. A sandbox has a /proc and a /dev of its own, and
// no /sys.
var kernelTrees = []string{"/dev", "/proc", "/sys"}

// kernelTypes are file systems that are none of the host's files, wherever somebody mounted
// them. A clone would also keep alive what they stand for, such as a namespace.
var kernelTypes = strings.Fields(`autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl
	hugetlbfs mqueue nsfs proc pstore rpc_pipefs securityfs selinuxfs sysfs tracefs`)

// Attach attaches a private clone of the tree at the target, and returns the paths in it
// where the host's mount can be written to. Every mount of the clone is read-only, nosuid and
// nodev: a command of the operator's that goes wrong in the daemon's directory must not reach
// the host's files. Loosen makes it as writable as the host's in a sandbox.
func (h HostTree) Attach() (writable []string, err error) {
	const op = "mount.host"
	var t tree
	err = onThrowawayThread(func() (err error) {
		t, writable, err = h.clone()
		return err
	})
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Mount, op, err)
	}
	err = errors.Join(t.attach(h.Target), t.Close())
	return writable, sbxerr.Wrap(sbxerr.Mount, op, err)
}

// clone leaves the thread in a mount namespace of its own, which has fewer and fewer mounts
// until those of the tree are left. The host's namespace stays as it is.
func (h HostTree) clone() (_ tree, writable []string, err error) {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return tree{}, nil, fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return tree{}, nil, fmt.Errorf("make the mounts private: %w", err)
	}
	mounts, err := h.thin()
	if err != nil {
		return tree{}, nil, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, nil, fmt.Errorf("clone the host's mounts: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return tree{}, nil, errors.Join(fmt.Errorf("restrict the host's mounts: %w", err), unix.Close(fd))
	}
	return tree{fd}, writablePoints(mounts), nil
}

// thin takes those mounts off that are not part of the tree, and returns the others.
func (h HostTree) thin() ([]*mountinfo.Info, error) {
	table, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMountsFromReader(table, nil)
	if err = errors.Join(err, table.Close()); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	for _, m := range slices.Backward(mounts) { // the topmost on a point first
		if !h.leavesOut(m) {
			continue
		}
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// One that another mount hides, or that went with its parent, is out of reach.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("leave out the mount on %q: %w", m.Mountpoint, err)
		}
	}
	return slices.DeleteFunc(mounts, h.leavesOut), nil
}

func (h HostTree) leavesOut(m *mountinfo.Info) bool {
	if m.Mountpoint == "/" {
		return false
	}
	return slices.Contains(kernelTypes, m.FSType) ||
		slices.ContainsFunc(slices.Concat(kernelTrees, h.Without), func(dir string) bool { return within(m.Mountpoint, dir) })
}

// writablePoints are the points whose topmost mount is not read-only.
func writablePoints(mounts []*mountinfo.Info) (points []string) {
	writable := map[string]bool{}
	for _, m := range mounts {
		writable[m.Mountpoint] = !slices.Contains(strings.Split(m.Options, ","), "ro")
	}
	for point, is := range writable {
		if is {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}

// Loosen takes the read-only flag off the mounts on points in a live sandbox, in which no
// command has run yet. Points are those of Attach, and point, of which nothing is touched at
// or below, that of PID 1. For sandbox and the caller's rights see Workspace.AttachInto.
func Loosen(sandbox *os.File, points []string, pid1 string) error {
	err := onThrowawayThread(func() error {
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		for _, point := range points {
			if within(point, pid1) {
				continue
			}
			if err := loosen(point); err != nil {
				return fmt.Errorf("let the mount on %q be written to: %w", point, err)
			}
		}
		return nil
	})
	return sbxerr.Wrap(sbxerr.Mount, "mount.host", err)
}

// loosen changes the mount on point, if there is one: it may lie below another that was
// mounted over it.
func loosen(point string) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, point, &how)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if errors.Is(err, unix.EINVAL) { // no mount is on it that can be seen
		err = nil
	}
	return errors.Join(err, unix.Close(fd))
}
