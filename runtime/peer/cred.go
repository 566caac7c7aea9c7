package peer

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxGroups is NGROUPS_MAX of the kernel (getgroups(2)).
const maxGroups = 65536

// FromConn asks the kernel who connected: SO_PEERCRED for the effective ids
// and the process, SO_PEERGROUPS (Linux 4.13) for the supplementary groups, all
// as they were at connect(2) (unix(7)). Nothing is read from /proc, where the
// process could be another one by now.
func FromConn(conn *net.UnixConn) (Caller, error) {
	const op = "peer.cred"
	raw, err := conn.SyscallConn()
	if err != nil {
		return Caller{}, sbxerr.Wrap(sbxerr.Peer, op, err)
	}
	var c Caller
	var ask error
	err = raw.Control(func(fd uintptr) { c, ask = credentials(int(fd)) })
	if err := errors.Join(err, ask); err != nil {
		return Caller{}, sbxerr.Wrap(sbxerr.Peer, op, err)
	}
	return c, nil
}

func credentials(fd int) (Caller, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Caller{}, fmt.Errorf("ask for the peer's credentials: %w", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return Caller{}, fmt.Errorf("ask for the peer's groups: %w", err)
	}
	return User(cred.Uid, cred.Gid, groups, cred.Pid), nil
}

// peerGroups asks with a small buffer first; the kernel says how large a list
// is that does not fit.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for range 2 {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno != unix.ERANGE || size > maxGroups*4:
			return nil, errno
		}
		groups = make([]uint32, size/4)
	}
	return nil, unix.ERANGE
}
