package mount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// IDMap maps a run of ids: the id that is stored on disk to the host id that
// the mount shows in its place (mount_setattr(2), MOUNT_ATTR_IDMAP). Ids
// outside every run show as the overflow id and cannot be created.
type IDMap struct {
	Disk uint32 // first id on disk
	Host uint32 // first host id shown for it
	Size uint32
}

// UserNS is a user namespace without a process in it. It exists only to carry
// a mapping to mount_setattr(2), and lasts as long as it is open.
type UserNS struct{ file *os.File }

// Close releases the namespace. Mounts that were made with it keep it alive
// for themselves.
func (u *UserNS) Close() error { return u.file.Close() }

// NewUserNS makes a user namespace with the given mappings, at least one of
// each kind. The caller needs CAP_SETUID, CAP_SETGID and CAP_SYS_ADMIN.
//
// A process must be born into the namespace to hold it while its maps are
// written (user_namespaces(7)). It is traced, so that it stops at its execve
// and is killed there: not one instruction of the program runs.
func NewUserNS(uids, gids []IDMap) (*UserNS, error) {
	const op = "mount.userns"
	if len(uids) == 0 || len(gids) == 0 {
		return nil, sbxerr.New(sbxerr.Internal, op, "an id mapping is empty")
	}
	type answer struct {
		ns  *UserNS
		err error
	}
	done := make(chan answer, 1)
	go func() { // ptrace(2) ties the tracee to this very thread
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		file, err := bornUserNS(sysMaps(uids), sysMaps(gids))
		if err != nil {
			done <- answer{err: sbxerr.Wrap(sbxerr.UserNS, op, err)}
			return
		}
		done <- answer{ns: &UserNS{file: file}}
	}()
	a := <-done
	return a.ns, a.err
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
