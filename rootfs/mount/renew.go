package mount

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Renewal gives a live sandbox another root, and new file systems in the place of some of its
// mounts. All other mounts move from the old root to the new one.
type Renewal struct {
	Root  string // where the new root is attached on the host
	Owner uint32 // host id of the sandbox's root
	Fresh []Fresh
}

// Fresh is a mount that begins anew.
type Fresh struct {
	Target     string            // absolute path inside
	Point      string            // directory of the host that is mounted there; empty: a tmpfs
	Options    map[string]string // of the tmpfs, with ids of the host
	Attributes int               // of the tmpfs: MOUNT_ATTR_*
}

// CheckPoints refuses a root, attached at dir on the host, that lacks a directory or file for one
// of the targets.
func CheckPoints(dir string, targets []string) (err error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrapPath("open", dir, err)
	}
	defer func() { err = errors.Join(err, unix.Close(root)) }()
	for _, target := range targets {
		point, err := openIn(root, target)
		if err != nil {
			return fmt.Errorf("no place for a mount on %q: %w", target, err)
		}
		if err := unix.Close(point); err != nil {
			return err
		}
	}
	return nil
}

// Apply renews a sandbox, of which only PID 1 is left, and that stands still. pid is that of
// PID 1, of which sandbox is a pidfd. For the caller's rights see Live.AttachInto.
//
// It can be called again after it failed, or ended half way, and then does what is missing. Before
// each step it calls step, whose error ends it.
func (r Renewal) Apply(pid int, sandbox *os.File, step func(name string) error) error {
	var n renewing
	err := n.open(r, pid)
	if err == nil {
		err = onThrowawayThread(func() error { return n.work(sandbox, step) })
	}
	return sbxerr.Wrap(mountCode(err), "mount.renew", errors.Join(err, n.close()))
}

// renewing is a Renewal under way.
type renewing struct {
	Renewal
	root  tree              // clone of the new root
	fresh map[string]tree   // by target
	old   int               // root of PID 1
	table []*mountinfo.Info // of PID 1
	fds   []int             // to close
}

func (n *renewing) open(r Renewal, pid int) (err error) {
	n.Renewal, n.fresh = r, map[string]tree{}
	if n.root, err = n.clone(r.Root); err != nil {
		return err
	}
	for _, f := range r.Fresh {
		var t tree
		if f.Point != "" {
			t, err = n.clone(f.Point)
		} else {
			t, err = newTmpfs(f.Options, f.Attributes)
			n.fds = append(n.fds, t.fd)
		}
		if err != nil {
			return fmt.Errorf("make the mount on %q: %w", f.Target, err)
		}
		n.fresh[f.Target] = t
	}
	if n.old, err = unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	n.fds = append(n.fds, n.old)
	table, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return err
	}
	n.table, err = mountinfo.GetMountsFromReader(table, nil)
	return errors.Join(err, table.Close())
}

func (n *renewing) clone(point string) (tree, error) {
	t, err := Live{Point: point}.tree()
	if err == nil {
		n.fds = append(n.fds, t.fd)
	}
	return t, err
}

func (n *renewing) close() (err error) {
	for _, fd := range n.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// work leaves the thread in the sandbox. The kernel gives a thread that enters a namespace the
// topmost mount as its root: where an earlier call ended half way, that is not the root of PID 1.
func (n *renewing) work(sandbox *os.File, step func(string) error) error {
	if err := enterMounts(sandbox); err != nil {
		return err
	}
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	n.fds = append(n.fds, top)
	if err := errors.Join(unix.Fchdir(n.old), unix.Chroot(".")); err != nil {
		return fmt.Errorf("enter the root of PID 1: %w", err)
	}
	renewed, err := n.isNew(n.old)
	if err != nil {
		return err
	}
	if renewed {
		return n.dropOther(top)
	}
	if top, err = n.attachRoot(top, step); err != nil {
		return err
	}
	if err := errors.Join(step("attached"), n.fill(top)); err != nil {
		return err
	}
	if err := errors.Join(step("moved"), unix.Fchdir(top)); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make it the root: %w", err)
	}
	return errors.Join(step("pivoted"), n.dropOther(n.old))
}

// isNew reports whether fd is on the new root.
func (n *renewing) isNew(fd int) (bool, error) {
	var is, want unix.Stat_t
	err := errors.Join(unix.Fstat(fd, &is), unix.Fstat(n.root.fd, &want))
	return is.Dev == want.Dev, err
}

// attachRoot attaches the new root over the old one, where no process sees it, unless it is there.
func (n *renewing) attachRoot(top int, step func(string) error) (int, error) {
	if there, err := n.isNew(top); err != nil || there {
		return top, err
	}
	if err := step("begun"); err != nil {
		return -1, err
	}
	return n.root.fd, n.root.attach("/")
}

// dropOther takes the old root off, which lies over the new one.
func (n *renewing) dropOther(fd int) error {
	own, err := mountID(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	if id, err := mountID(fd, ""); err != nil || id == own {
		return err
	}
	return errors.Join(tree{fd}.takeOff(), backToRoot())
}

// fill gives the root at top its mounts.
func (n *renewing) fill(top int) error {
	id, err := mountID(n.old, "")
	if err != nil {
		return err
	}
	done := map[string]bool{}
	if err := n.fillBelow(int(id), top, done); err != nil {
		return err
	}
	for _, f := range n.Fresh { // those in mounts that were moved
		if done[f.Target] {
			continue
		}
		if err := n.replace(top, f.Target); err != nil {
			return fmt.Errorf("renew %q: %w", f.Target, err)
		}
	}
	return nil
}

// fillBelow moves or renews what is mounted on the old mount with that id.
func (n *renewing) fillBelow(id, top int, done map[string]bool) error {
	above, err := mountID(top, "")
	if err != nil {
		return err
	}
	for _, m := range n.table {
		if m.Parent != id || m.ID == int(above) {
			continue
		}
		if _, fresh := n.fresh[m.Mountpoint]; !fresh {
			if err := n.move(top, m.Mountpoint); err != nil {
				return fmt.Errorf("move the mount on %q: %w", m.Mountpoint, err)
			}
			continue
		}
		done[m.Mountpoint] = true
		if err := n.renew(top, m); err != nil {
			return fmt.Errorf("renew %q: %w", m.Mountpoint, err)
		}
		if err := n.fillBelow(m.ID, top, done); err != nil {
			return err
		}
	}
	return nil
}

func (n *renewing) move(top int, target string) (err error) {
	from, err := openIn(n.old, target)
	if err != nil {
		return err
	}
	return errors.Join(n.put(tree{from}, top, target), unix.Close(from))
}

// renew attaches the new mount in the place of m, with directories for what lies on m.
func (n *renewing) renew(top int, m *mountinfo.Info) error {
	t := n.fresh[m.Mountpoint]
	if there, err := n.isPoint(top, m.Mountpoint); err != nil || there {
		return err
	}
	for _, below := range n.table {
		if below.Parent != m.ID {
			continue
		}
		name := ""
		for part := range strings.SplitSeq(strings.TrimPrefix(below.Mountpoint, m.Mountpoint+"/"), "/") {
			name = path.Join(name, part)
			if err := makeOwned(t.fd, name, 0o755, int(n.Owner), int(n.Owner)); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	}
	return n.put(t, top, m.Mountpoint)
}

// replace takes off what is mounted at the target, and attaches the new mount.
func (n *renewing) replace(top int, target string) error {
	there, err := n.isPoint(top, target)
	if err != nil {
		return err
	}
	if there {
		old, err := openIn(top, target)
		if err != nil {
			return err
		}
		if err := errors.Join(tree{old}.takeOff(), backToRoot(), unix.Close(old)); err != nil {
			return err
		}
	}
	return n.put(n.fresh[target], top, target)
}

// put attaches t at the target below top.
func (n *renewing) put(t tree, top int, target string) error {
	point, err := openIn(top, target)
	if err != nil {
		return err
	}
	err = unix.MoveMount(t.fd, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return errors.Join(err, unix.Close(point))
}

func (n *renewing) isPoint(top int, target string) (bool, error) {
	point, err := openIn(top, target)
	if err != nil {
		return false, err
	}
	there, err := isPoint(point, "")
	return there, errors.Join(err, unix.Close(point))
}

// openIn opens what target is below root, through no link.
func openIn(root int, target string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	return unix.Openat2(root, strings.TrimPrefix(target, "/"), &how)
}

// OpenBelow opens a directory below root, with O_PATH, through no link and no other mount.
func OpenBelow(root, name string) (*os.File, error) {
	above, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(above, name, &how)
	if err = errors.Join(err, unix.Close(above)); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Outermost are those of the targets that lie in no other.
func Outermost(targets []string) []string {
	return slices.DeleteFunc(slices.Clone(targets), func(t string) bool {
		return slices.ContainsFunc(targets, func(other string) bool { return t != other && within(t, other) })
	})
}

// Replace moves the mount at point from to point to, and takes off what was there. Where nothing
// is at from, that was done.
func Replace(from, to string) error {
	there, err := IsPoint(from)
	if err != nil || !there {
		return err
	}
	fd, err := unix.Open(from, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = DetachBehind(to)
	if err == nil {
		err = tree{fd}.attach(to)
	}
	return sbxerr.Wrap(sbxerr.Mount, "mount.replace", errors.Join(err, unix.Close(fd)))
}
