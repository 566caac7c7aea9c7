package harness

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Dial connects to the daemon as the user: the kernel tells the daemon who connected.
func (u User) Dial(t testing.TB) net.Conn {
	t.Helper()
	runtime.LockOSThread() // the thread never runs other code again where its ids do not come back
	set := func(uid, gid int) error {
		const keep = ^uintptr(0)
		if uid == 0 {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
				return errno
			}
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(gid), keep); errno != 0 {
			return errno
		}
		if uid != 0 {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
				return errno
			}
		}
		return nil
	}
	if err := set(int(u.UID), int(u.GID)); err != nil {
		t.Fatal(err)
	}
	conn, dialErr := net.Dial("unix", u.daemon.Socket)
	if err := set(0, 0); err != nil {
		t.Fatal(err)
	}
	runtime.UnlockOSThread()
	if dialErr != nil {
		t.Fatal(dialErr)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have
	return conn
}
