package peer

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// onThrowawayThread runs fn on a thread that Go ends afterwards. It is never
// the process's first thread, which Go cannot end: that one would keep what fn
// did to it, and is what /proc shows of the whole process.
func onThrowawayThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			fn() // never unlocked
			return
		}
		onThrowawayThread(fn) // this thread is taken while it waits
		goruntime.UnlockOSThread()
	}()
	<-done
}

// become gives this thread c's rights over files and no other: its groups, its
// ids for file systems alone (setfsuid(2)), and no capability. The real and
// effective ids stay root's: a thread that has those of a user can be killed
// by that user, and with it the daemon. What was set is read back, because
// setfsuid does not report errors.
func become(c Caller) error {
	groups := make([]int, len(c.Groups))
	for i, id := range c.Groups {
		groups[i] = int(id)
	}
	if err := unix.Setgroups(groups); err != nil { // of x/sys: of this thread alone
		return sbxerr.Wrap(sbxerr.Rights, "peer.become", fmt.Errorf("take on the groups of %s: %w", c, err))
	}
	_, _ = unix.SetfsgidRetGid(int(c.GID))
	_, _ = unix.SetfsuidRetUid(int(c.UID))
	var none [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &none[0]); err != nil {
		return sbxerr.Wrap(sbxerr.Rights, "peer.become", fmt.Errorf("drop the capabilities: %w", err))
	}
	return sbxerr.Wrap(sbxerr.Rights, "peer.become", became(c))
}

// became checks that this thread has c's rights and no more.
func became(c Caller) error {
	gid, _ := unix.SetfsgidRetGid(-1) // no id: only says which it is
	uid, _ := unix.SetfsuidRetUid(-1)
	if uint32(uid) != c.UID || uint32(gid) != c.GID {
		return fmt.Errorf("take on uid %d, gid %d: the thread has %d, %d", c.UID, c.GID, uid, gid)
	}
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the thread's capabilities: %w", err)
	}
	if data[0].Effective|data[1].Effective != 0 {
		return fmt.Errorf("take on %s: the thread keeps capabilities %#x", c, data)
	}
	return nil
}

// errKind is what is neither a directory nor a regular file.
var errKind = errors.New("it is neither a directory nor a regular file")

// check asks whether this thread may list and enter the directory fd, or read the file, and write
// there. It is the system call itself, because the wrapper guesses from the effective user, root,
// where the call is refused.
func (a access) check(fd int, kind uint32) error {
	mode := uintptr(unix.R_OK)
	switch kind & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= unix.X_OK
	case unix.S_IFREG:
	default:
		return errKind
	}
	if a.write {
		mode |= unix.W_OK
	}
	empty := []byte{0}
	_, _, errno := unix.Syscall6(unix.SYS_FACCESSAT2, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])), mode,
		unix.AT_EMPTY_PATH|unix.AT_EACCESS, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
