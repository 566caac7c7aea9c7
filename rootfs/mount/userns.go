package mount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// IDMap maps a run of ids: the id that is stored on disk to the host id that
// the mount shows in its place (mount_setattr(2), MOUNT_ATTR_IDMAP). Ids
// outside every run show as the overflow id and cannot be created.
type IDMap struct {
	Disk uint32 // first id on disk
	Host uint32 // first host id shown for it
	Size uint32
}

// UserNS is a user namespace without a process in it: it carries a mapping to
// mount_setattr(2), or waits to be joined. It lasts as long as it is open.
type UserNS struct {
	file  *os.File
	owner *uint32 // nil: the daemon's own user
}

// Close releases the namespace. Mounts that were made with it keep it alive
// for themselves.
func (u *UserNS) Close() error { return u.file.Close() }

// NewUserNS makes a user namespace with the given mappings, at least one of
// each kind. The caller needs CAP_SETUID, CAP_SETGID and CAP_SYS_ADMIN.
//
// A process must be born into the namespace to hold it while its maps are
// written (user_namespaces(7)). It is traced, so that it stops at its execve
// and is killed there: not one instruction of the program runs.
func NewUserNS(uids, gids []IDMap) (*UserNS, error) { return newUserNS(nil, uids, gids) }

// NewOwnedUserNS is NewUserNS for a namespace in which processes are to run, and
// which is owned by the host's user owner instead of the caller's, root. What a
// user may have of the kernel (inotify instances and watches, queued signals,
// locked memory: namespaces(7), /proc/sys/user) counts for the user inside and for
// the owner of each namespace above: root's own share would be used up by any
// sandbox, and with it everybody's. It needs CAP_SETPCAP as well.
//
// A process of owner outside would have all capabilities inside; nobody else may
// have that id.
func NewOwnedUserNS(owner uint32, uids, gids []IDMap) (*UserNS, error) {
	return newUserNS(&owner, uids, gids)
}

func newUserNS(owner *uint32, uids, gids []IDMap) (*UserNS, error) {
	const op = "mount.userns"
	if len(uids) == 0 || len(gids) == 0 {
		return nil, sbxerr.New(sbxerr.Internal, op, "an id mapping is empty")
	}
	u := &UserNS{owner: owner}
	err := u.AsOwner(func() (err error) { // ptrace(2) ties the tracee to this very thread
		u.file, err = bornUserNS(sysMaps(uids), sysMaps(gids))
		return err
	})
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.UserNS, op, err)
	}
	return u, nil
}

// AsOwner calls f on a thread whose effective user owns the namespace, and so has
// all capabilities over the processes in it (user_namespaces(7)), beside those of
// the daemon. The thread ends with f.
func (u *UserNS) AsOwner(f func() error) error {
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // for good
		var err error
		if u.owner != nil {
			err = actFor(*u.owner)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// actFor makes the calling thread's effective user owner, to whom a namespace that
// it creates belongs then, and leaves it its capabilities (capabilities(7),
// SECBIT_NO_SETUID_FIXUP). The system call is made directly: the C library's
// function, and Go's, changes all threads.
func actFor(owner uint32) error {
	const noSetuidFixup = 1 << 2
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noSetuidFixup, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(owner), keep); errno != 0 {
		return fmt.Errorf("act for user %d: %w", owner, errno)
	}
	return nil
}

// Pin binds the namespace to a new file at path, by which it can be joined.
func (u *UserNS) Pin(path string) error {
	const op = "mount.userns"
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return sbxerr.Wrap(sbxerr.UserNS, op, err)
	}
	if err := f.Close(); err != nil {
		return sbxerr.Wrap(sbxerr.UserNS, op, err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", u.file.Fd()), path, "", unix.MS_BIND, ""); err != nil {
		return sbxerr.Wrap(sbxerr.UserNS, op, errors.Join(wrapPath("bind user namespace to", path, err), owndir.Remove(path)))
	}
	return nil
}

// Unpin undoes Pin. Absent is success.
func Unpin(path string) error {
	if err := Detach(path); err != nil {
		return err
	}
	return sbxerr.Wrap(sbxerr.UserNS, "mount.userns", owndir.Remove(path))
}

func bornUserNS(uids, gids []syscall.SysProcIDMap) (_ *os.File, err error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: uids,
		GidMappings: gids,
		Ptrace:      true,
		Pdeathsig:   syscall.SIGKILL,

		GidMappingsEnableSetgroups: true, // who joins it takes on its groups
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("create a user namespace: %w", err)
	}
	defer func() {
		err = errors.Join(err, reapTraced(cmd.Process))
	}()
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		return nil, fmt.Errorf("open the new user namespace: %w", err)
	}
	return file, nil
}

// reapTraced kills a stopped tracee and collects it. The first wait status is
// the stop at execve, so os.Process.Wait would return too early.
func reapTraced(p *os.Process) error {
	if err := p.Kill(); err != nil {
		return fmt.Errorf("kill the holder of a user namespace: %w", err)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.Pid, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the holder of a user namespace: %w", err)
		case status.Exited() || status.Signaled():
			return p.Release()
		}
	}
}

func sysMaps(maps []IDMap) []syscall.SysProcIDMap {
	out := make([]syscall.SysProcIDMap, 0, len(maps))
	for _, m := range maps {
		out = append(out, syscall.SysProcIDMap{ContainerID: int(m.Disk), HostID: int(m.Host), Size: int(m.Size)})
	}
	return out
}

// MapMount has a mount that is not attached yet show its ids as u maps them.
func (u *UserNS) MapMount(fd int) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(u.file.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return sbxerr.Wrap(sbxerr.IDMap, "mount.map", fmt.Errorf("map ids of a mount: %w", err))
	}
	return nil
}
