package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// HostTree is the host's own file system with the mounts in it, as the root of a sandbox
// without isolation. It is only ever attached in the sandbox's mount namespace. In the host's
// it would keep the directories busy on which its mounts lie, and removing the daemon's
// directory would remove the host's files.
type HostTree struct {
	Without []string // directories of the daemon's: no mount at or below them is part of the tree
	Keep    []string // absolute paths of mounts that the sandbox keeps; they are directories of the host, too
}

// Place is one mount of the tree.
type Place struct {
	Device string `json:"device"` // major:minor of the file system
	Root   string `json:"root"`   // directory of the file system that is mounted
	Point  string `json:"point"`  // absolute path in the sandbox
}

// hostPoint is where the tree is attached in the placeholder, before it becomes the root.
const hostPoint = "host"

// kernelTrees have the kernel's interfaces. A sandbox has a /proc and a /dev of its own, and
// no /sys.
var kernelTrees = []string{"/dev", "/proc", "/sys"}

// kernelTypes are file systems that are none of the host's files, wherever somebody mounted
// them. A clone would also keep alive what they stand for, such as a namespace.
var kernelTypes = strings.Fields(`binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl
	hugetlbfs mqueue nsfs proc pstore rpc_pipefs securityfs selinuxfs sysfs tracefs`)

// AttachPlaceholder mounts a small tmpfs at dir, which exists: the root with which the OCI
// runtime begins, until Enter replaces it. It has nothing but mount points.
func (h HostTree) AttachPlaceholder(dir string) error {
	t, err := newTmpfs(map[string]string{"size": "64k", "nr_inodes": "64", "mode": "0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err == nil {
		err = errors.Join(h.fillPlaceholder(t.fd), t.attach(dir), t.Close())
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("make the placeholder of the root: %w", err), Detach(dir))
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.host", err)
}

func (h HostTree) fillPlaceholder(fd int) error {
	for _, point := range append([]string{hostPoint}, h.Keep...) {
		name := ""
		for part := range strings.SplitSeq(strings.Trim(point, "/"), "/") {
			name = filepath.Join(name, part)
			if err := unix.Mkdirat(fd, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// Enter makes a private clone of the tree the root of a live sandbox that has the placeholder,
// and returns its mounts. Each is nosuid and nodev, otherwise as on the host. The mounts to
// keep lie on top. No command has run in the sandbox yet. For sandbox and the caller's rights
// see Workspace.AttachInto.
func (h HostTree) Enter(sandbox *os.File) (places []Place, err error) {
	const op = "mount.host"
	var t tree
	err = onThrowawayThread(func() (err error) {
		t, places, err = h.clone()
		return err
	})
	if err == nil {
		err = errors.Join(onThrowawayThread(func() error { return h.replaceRoot(sandbox, t) }), t.Close())
	}
	return places, sbxerr.Wrap(sbxerr.Mount, op, err)
}

// clone leaves the thread in a mount namespace of its own, which has fewer and fewer mounts
// until those of the tree are left. The host's namespace stays as it is.
func (h HostTree) clone() (_ tree, places []Place, err error) {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return tree{}, nil, fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return tree{}, nil, fmt.Errorf("make the mounts private: %w", err)
	}
	if places, err = h.thin(); err != nil {
		return tree{}, nil, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, nil, fmt.Errorf("clone the host's mounts: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return tree{}, nil, errors.Join(fmt.Errorf("restrict the host's mounts: %w", err), unix.Close(fd))
	}
	return tree{fd}, places, nil
}

// thin takes those mounts off that are not part of the tree, and returns the others, the
// lowest on a point first.
func (h HostTree) thin() (places []Place, err error) {
	table, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMountsFromReader(table, nil)
	if err = errors.Join(err, table.Close()); err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	var without []string
	for _, m := range mounts {
		if h.leavesOut(m) {
			without = append(without, m.Mountpoint)
		}
	}
	leftOut := func(m *mountinfo.Info) bool {
		return slices.ContainsFunc(without, func(point string) bool { return within(m.Mountpoint, point) })
	}
	for _, m := range slices.Backward(mounts) { // the topmost on a point first
		if !leftOut(m) {
			continue
		}
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// One that another mount hides, or that went with its parent, is out of reach.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("leave out the mount on %q: %w", m.Mountpoint, err)
		}
	}
	for _, m := range mounts {
		if !leftOut(m) {
			places = append(places, Place{Device: fmt.Sprintf("%d:%d", m.Major, m.Minor), Root: m.Root, Point: m.Mountpoint})
		}
	}
	return places, nil
}

// leavesOut reports whether neither m nor another mount at or below its point is part of the
// tree. All daemons of the host have the mounts of their sandboxes below one called caisson.
func (h HostTree) leavesOut(m *mountinfo.Info) bool {
	if m.Mountpoint == "/" {
		return false
	}
	return slices.Contains(kernelTypes, m.FSType) || m.Source == sourceName ||
		slices.ContainsFunc(slices.Concat(kernelTrees, h.Without), func(dir string) bool { return within(m.Mountpoint, dir) })
}

// replaceRoot leaves the thread in the sandbox. The mounts to keep are cloned and not moved:
// the OCI runtime's process, which waits in the sandbox, finds them at any time.
func (h HostTree) replaceRoot(sandbox *os.File, t tree) error {
	if err := enterMounts(sandbox); err != nil {
		return err
	}
	if err := t.attach("/" + hostPoint); err != nil {
		return err
	}
	for _, point := range h.Keep {
		if err := keepMount(point, "/"+hostPoint); err != nil {
			return fmt.Errorf("keep the mount on %q: %w", point, err)
		}
	}
	return pivot("/" + hostPoint)
}

// keepMount clones the mount on point, with those below it, to the same point below root. No
// symbolic link of the host is followed on the way.
func keepMount(point, root string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, point, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	target, err := unix.Openat2(dir, strings.TrimPrefix(point, "/"), &how)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return unix.MoveMount(fd, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// pivot makes the mount on dir the root of all processes in the namespace, and takes the old
// one off (pivot_root(2), notes).
func pivot(dir string) error {
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(old)
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make the host's tree the root: %w", err)
	}
	if err := unix.Fchdir(old); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("take the placeholder off: %w", err)
	}
	return unix.Chdir("/")
}
