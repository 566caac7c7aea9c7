package pid1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto"
)

// Listener waits for the one connection of one sandbox's PID 1.
type Listener struct {
	l   *net.UnixListener
	dir *os.File // so that Close removes what Listen made, wherever dir moved
	ino uint64   // of the socket, which by now may be another's
	uid uint32
}

// Listen makes the socket initproto.SocketName in dir, a directory that only
// the daemon can write. It belongs to uid and gid, the host's ids of the
// sandbox's user, with mode 0600. A socket that is already there, left by an
// earlier daemon, is replaced, and a PID 1 that waits for the next one is woken.
func Listen(dir string, uid, gid int) (*Listener, error) {
	l, err := listen(dir, uid, gid)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "pid1.listen", fmt.Errorf("make socket in %q: %w", dir, err))
	}
	return l, nil
}

func listen(path string, uid, gid int) (*Listener, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), path)
	if err := errors.Join(removeStale(fd), makeWake(fd, uid, gid)); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	l, err := listenAt(fd, uid, gid)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	st, err := statSocket(fd)
	err = errors.Join(err, wake(fd))
	if err != nil {
		return nil, errors.Join(err, l.Close(), dir.Close())
	}
	return &Listener{l: l, dir: dir, ino: st.Ino, uid: uint32(uid)}, nil
}

func statSocket(dirfd int) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dirfd, initproto.SocketName, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// removeStale removes a socket, and nothing else, from where the new one is to
// be. That no other daemon listens there is for the lock on the state to see to.
func removeStale(dirfd int) error {
	st, err := statSocket(dirfd)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("stat old socket: %w", err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return nil // bind fails
	}
	if err := unix.Unlinkat(dirfd, initproto.SocketName, 0); err != nil {
		return fmt.Errorf("remove old socket: %w", err)
	}
	return nil
}

// listenAt binds through /proc, because a state directory may well be longer
// than the 107 bytes that an address holds (unix(7)). Owner and mode are set
// before listen(2): until then nobody can connect.
func listenAt(dirfd, uid, gid int) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), initproto.SocketName)
	defer f.Close() // FileListener has its own copy
	refuseRights(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dirfd, initproto.SocketName)}); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	l, err := publish(f, fd, dirfd, uid, gid)
	if err != nil {
		return nil, errors.Join(err, unix.Unlinkat(dirfd, initproto.SocketName, 0))
	}
	return l, nil
}

func publish(f *os.File, fd, dirfd, uid, gid int) (*net.UnixListener, error) {
	if err := unix.Fchmodat(dirfd, initproto.SocketName, 0o600, 0); err != nil {
		return nil, fmt.Errorf("set mode: %w", err)
	}
	if err := unix.Fchownat(dirfd, initproto.SocketName, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fmt.Errorf("set owner %d:%d: %w", uid, gid, err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// refuseRights has the kernel refuse descriptors where they are sent, for this
// socket and those accepted from it (SO_PASSRIGHTS, Linux 6.16). An older
// kernel discards them where they are received, which socket.recv sees to; the
// difference is that the discarding close(2) may then block, for instance on a
// socket with SO_LINGER, but never longer than the sandbox lives. Only while it
// adopts does a connection let them through; see socket.adopt.
func refuseRights(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}

// Accept waits for PID 1, whose pid on the host is pid, and for its Hello, and
// adopts what it has running from an earlier daemon, in the order of the
// numbers: nothing for a fresh PID 1. Connections of others are refused. When it
// succeeds the listener is closed and its socket removed: there is one
// connection at a time. The caller bounds ctx, and cancels it when the task
// ends.
func (l *Listener) Accept(ctx context.Context, pid int, o Options) (*Client, []Held, error) {
	conn, err := l.accept(ctx, pid)
	if err != nil {
		return nil, nil, acceptError(ctx, fmt.Errorf("await connection of pid %d: %w", pid, err))
	}
	s := &socket{conn: conn, timeout: sendTimeout}
	held, err := s.greet(ctx, pid, o)
	if err != nil {
		return nil, nil, errors.Join(acceptError(ctx, err), closeAside(ctx, conn))
	}
	if err := l.Close(); err != nil {
		closeHeld(held)
		return nil, nil, errors.Join(err, s.close())
	}
	return newClient(s, defaultPatience, held), held, nil
}

func (l *Listener) accept(ctx context.Context, pid int) (*net.UnixConn, error) {
	stop := interrupt(ctx, l.l)
	defer stop()
	for {
		conn, err := l.l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := peer(conn)
		if err == nil && int(cred.Pid) == pid && cred.Uid == l.uid {
			return conn, nil
		}
		if err := errors.Join(err, closeAside(ctx, conn)); err != nil {
			return nil, err
		}
	}
}

// Close stops listening and removes the socket. A second call does nothing.
func (l *Listener) Close() error {
	err := l.l.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	var gone error
	if cerr := control(l.dir, func(dirfd int) { gone = l.unlink(dirfd) }); cerr != nil {
		gone = cerr
	}
	if errors.Is(gone, unix.ENOENT) {
		gone = nil
	}
	return sbxerr.Wrap(sbxerr.StateDir, "pid1.close", errors.Join(err, gone, l.dir.Close()))
}

// unlink removes the socket unless another Listener has replaced it.
func (l *Listener) unlink(dirfd int) error {
	if st, err := statSocket(dirfd); err != nil || st.Ino != l.ino {
		return err
	}
	return unix.Unlinkat(dirfd, initproto.SocketName, 0)
}

// peer returns who connected, as the kernel recorded it at connect(2).
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	var cred *unix.Ucred
	var err error
	if cerr := control(conn, func(fd int) { cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return nil, cerr
	}
	return cred, err
}

type deadliner interface{ SetDeadline(time.Time) error }

// interrupt makes d's blocking calls fail once ctx ends, until stop is called.
// A false from stop says that ctx has ended, so d is of no use any more.
func interrupt(ctx context.Context, d deadliner) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = d.SetDeadline(longAgo) })
}

var longAgo = time.Unix(1, 0)

// acceptError puts err, met while waiting for PID 1, under a code: a PID 1 that
// lets the deadline pass has failed, a caller that cancels has not.
func acceptError(ctx context.Context, err error) error {
	const op = "pid1.accept"
	switch {
	case ctx.Err() == nil:
		return sbxerr.Wrap(sbxerr.Init, op, err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sbxerr.New(sbxerr.Init, op, "%w: %w", err, context.Cause(ctx))
	}
	return sbxerr.New(sbxerr.Canceled, op, "%w: %w", err, context.Cause(ctx))
}
