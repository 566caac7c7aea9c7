package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// attachOn mounts t at name in the mount namespace of the calling thread, whose root is its
// working directory.
func (t tree) attachOn(name string, readOnly bool, on On) error {
	switch on {
	case OnAny:
		return t.attachAt(name, readOnly, openAny)
	case OnOwn:
		return t.replace(name, readOnly)
	}
	return t.attachAt(name, readOnly, openPoint)
}

func (t tree) attachAt(name string, readOnly bool, open func(string) (int, error)) error {
	point, err := open(name)
	if err != nil {
		return err
	}
	const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err = t.checkKind(point); err == nil {
		err = unix.MoveMount(t.fd, "", point, "", flags)
	}
	err = errors.Join(wrapPath("attach a mount at", "/"+name, err), unix.Close(point))
	if err != nil {
		return err
	}
	err = t.checkAt(name)
	if err == nil {
		err = checkFlags(name, readOnly)
	}
	if err != nil {
		return errors.Join(err, t.takeOff(), backToRoot())
	}
	return nil
}

// checkKind refuses a directory on a file, and the reverse, as the kernel would without saying why.
func (t tree) checkKind(point int) error {
	var own, st unix.Stat_t
	if err := errors.Join(unix.Fstat(t.fd, &own), unix.Fstat(point, &st)); err != nil {
		return err
	}
	switch {
	case own.Mode&unix.S_IFMT == st.Mode&unix.S_IFMT:
		return nil
	case own.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.ENOTDIR
	}
	return unix.EISDIR
}

// replace mounts t in the place of the mount at name, which must be empty. The one that was
// there comes back where that fails.
func (t tree) replace(name string, readOnly bool) error {
	old, err := takeAway(name)
	if err != nil {
		return err
	}
	if err = t.attachAt(name, readOnly, openPoint); err != nil {
		err = errors.Join(err, old.attachAt(name, false, openPoint))
	}
	return errors.Join(err, old.Close())
}

// takeAway detaches the mount at name and returns a copy of it.
func takeAway(name string) (old tree, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	if err != nil {
		return tree{}, fmt.Errorf("open the mount at %q: %w", "/"+name, err)
	}
	dir := os.NewFile(uintptr(fd), "/"+name)
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := checkEmpty(fd); err != nil {
		return tree{}, fmt.Errorf("replace the mount at %q: %w", "/"+name, err)
	}
	if old, err = cloneTree(dir); err != nil {
		return tree{}, err
	}
	mounted := tree{fd}
	if err := errors.Join(mounted.takeOff(), backToRoot()); err != nil { // EINVAL: it is no mount's root
		return tree{}, errors.Join(err, old.Close())
	}
	return old, nil
}

func backToRoot() error { return wrapPath("change to", "/", unix.Chdir("/")) }

// enterMounts moves the calling thread, for good, into the mount namespace of
// sandbox, with its root as root and working directory. The daemon's own is refused:
// a mount there would be seen by the host. Mounts of two namespaces have never the
// same id, so the roots tell.
func enterMounts(sandbox *os.File) error {
	own, err := mountID(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns(2) demands it
		return fmt.Errorf("unshare the working directory: %w", err)
	}
	if err := unix.Setns(int(sandbox.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the sandbox's mount namespace: %w", err)
	}
	entered, err := mountID(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	if entered == own {
		return sbxerr.New(sbxerr.Internal, "mount.attach", "enter the sandbox's mount namespace: it is the daemon's own")
	}
	return nil
}

// openPoint opens the directory name of the root, which must be empty and on the
// root's own mount.
func openPoint(name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	switch {
	case errors.Is(err, unix.EXDEV):
		return -1, fmt.Errorf("open the mount point %q: something is mounted there: %w", "/"+name, err)
	case err != nil:
		return -1, fmt.Errorf("open the mount point %q: %w", "/"+name, err)
	}
	if err := checkEmpty(fd); err != nil {
		return -1, errors.Join(fmt.Errorf("use the mount point %q: %w", "/"+name, err), unix.Close(fd))
	}
	return fd, nil
}

// checkEmpty reads a few entries, which is enough: only "." and ".." may be there.
func checkEmpty(fd int) error {
	buf := make([]byte, 4096)
	n, err := unix.ReadDirent(fd, buf)
	if err != nil {
		return err
	}
	if _, _, names := unix.ParseDirent(buf[:n], -1, nil); len(names) > 0 {
		return fmt.Errorf("it holds %q: %w", names[0], unix.ENOTEMPTY)
	}
	return nil
}

// checkAt makes sure that t is what the sandbox has at name.
func (t tree) checkAt(name string) error {
	want, err := mountID(t.fd, "")
	if err != nil {
		return err
	}
	got, err := mountID(unix.AT_FDCWD, name)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("find the mount at %q: another one, or none, is there", "/"+name)
	}
	return nil
}

// checkFlags makes sure that what is at name is restricted as declared.
func checkFlags(name string, readOnly bool) error {
	want := int64(unix.ST_NOSUID | unix.ST_NODEV)
	if readOnly {
		want |= unix.ST_RDONLY
	}
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return wrapPath("read the flags of", "/"+name, err)
	}
	if lacks := want &^ st.Flags; lacks != 0 {
		return fmt.Errorf("the mount at %q lacks the flags %#x (statfs(2))", "/"+name, lacks)
	}
	return nil
}

// takeOff detaches t wherever it is attached: its root is the working directory, so
// no path is resolved.
func (t tree) takeOff() error {
	if err := unix.Fchdir(t.fd); err != nil {
		return fmt.Errorf("take the mount off again: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("take the mount off again: %w", err)
	}
	return nil
}

// mountID tells on which mount name lies (statx(2), STATX_MNT_ID, Linux 5.8); an
// empty name is fd itself.
func mountID(fd int, name string) (uint64, error) {
	var st unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC
	if err := unix.Statx(fd, name, flags, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("statx %q: %w", name, err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, fmt.Errorf("statx %q: the kernel tells no mount id", name)
	}
	return st.Mnt_id, nil
}
