package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestLockDirs(t *testing.T) {
	root, state := filepath.Join(t.TempDir(), "root"), filepath.Join(t.TempDir(), "state")
	unlock, err := lockDirs(root, state)
	if err != nil {
		t.Fatal(err)
	}
	for _, dirs := range [][]string{{root, state}, {root, t.TempDir()}, {t.TempDir(), state}} {
		if _, err := lockDirs(dirs...); sbxerr.Of(err) != sbxerr.Locked || !strings.Contains(err.Error(), "another caissond holds") {
			t.Errorf("a second daemon on %q: %v", dirs, err)
		}
	}
	other := t.TempDir()
	if _, err := lockDirs(other, state); err == nil {
		t.Error("a second daemon on the state")
	}
	free, err := lockDirs(other) // a refused daemon holds nothing
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(free(), unlock()); err != nil {
		t.Fatal(err)
	}
	unlock, err = lockDirs(root, state)
	if err != nil {
		t.Fatalf("after the first ended: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestLockDirsRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDirs(dir); sbxerr.Of(err) != sbxerr.StateDir {
		t.Errorf("a lock that leads elsewhere: %v", err)
	}
	if _, err := lockDirs(filepath.Join(dir, "lock", "x")); sbxerr.Of(err) != sbxerr.StateDir {
		t.Errorf("a directory that cannot be: %v", err)
	}
}

// shortDir is short enough for a socket's address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "caissond")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func closed(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// published is a socket that clients find.
func published(path string, open door) (*apiSocket, error) {
	s, err := listen(path, open)
	if err != nil {
		return nil, err
	}
	return s, s.publish()
}

// Before the sandboxes are adopted, nobody finds the socket, and nothing of it stays
// where the daemon gives up.
func TestListenIsPrivateFirst(t *testing.T) {
	path := filepath.Join(shortDir(t), "caisson.sock")
	s, err := listen(path, door{0o600, os.Getegid()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it is published: %v", err)
	}
	if err := s.abandon(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(shortDir(t), "run", "caisson.sock")
	own := door{0o600, os.Getegid()} // that much any user may give
	old := unix.Umask(0)             // the mode must not depend on it
	l, err := published(path, own)
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket %v, %v", st, err)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || st.Mode().Perm()&0o022 != 0 {
		t.Errorf("its directory %v, %v", st, err)
	}
	if _, err := listen(path, own); sbxerr.Of(err) != sbxerr.Locked {
		t.Errorf("a second daemon: %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("after a second daemon was refused: %v", err)
	}
	closed(t, conn)

	closed(t, l) // as a killed daemon: the name stays
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	l, err = published(path, own)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	conn, err = net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, conn)
	closed(t, l)
	if left, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(left) != 1 {
		t.Errorf("beside the socket: %q", left)
	}
}

func TestListenRefusesWhatIsNoSocket(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "caisson.sock")
	for name, make := range map[string]func() error{
		"file":      func() error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"link":      func() error { return os.Symlink("/dev/null", path) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		_, err := listen(path, rootsDoor)
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "something else has that name") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
	if _, err := listen(filepath.Join(dir, strings.Repeat("x", 200)), rootsDoor); sbxerr.Of(err) != sbxerr.StateDir {
		t.Errorf("a name that is too long: %v", err)
	}
}

// TestListenLeavesABusyDaemonAlone: its queue is full, so connect(2) fails, but
// not because nobody is there.
func TestListenLeavesABusyDaemonAlone(t *testing.T) {
	path := filepath.Join(shortDir(t), "caisson.sock")
	newSocket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	address := &unix.SockaddrUnix{Name: path}
	daemon := newSocket()
	if err := errors.Join(unix.Bind(daemon, address), unix.Listen(daemon, 0)); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		err := unix.Connect(newSocket(), address)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := listen(path, rootsDoor); sbxerr.Of(err) != sbxerr.Locked {
		t.Errorf("a busy daemon: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("its socket: %v", err)
	}
}
