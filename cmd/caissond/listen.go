package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// apiSocket is the socket of the API. It has a private name until the daemon serves.
type apiSocket struct {
	*net.UnixListener
	path string
}

// listen makes the API's socket for those whom the door lets through. A socket
// that nobody answers on was left by a daemon that was killed; publish replaces it.
func listen(path string, open door) (*apiSocket, error) {
	const op = "caissond.listen"
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if err := checkStale(path); err != nil {
		return nil, err
	}
	s := &apiSocket{path: path}
	if err := os.Remove(s.private()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.private(), Net: "unix"})
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	l.SetUnlinkOnClose(false) // the daemon unlinks the name that the socket has by then
	s.UnixListener = l
	if err := open.of(s.private()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, s.abandon()))
	}
	return s, nil
}

// of gives the socket at path the door's group and mode.
func (open door) of(path string) error {
	return errors.Join(os.Chown(path, -1, open.gid), os.Chmod(path, open.mode))
}

// private is a name that nobody looks for. Between bind and chmod the umask alone says
// who may connect, and before the sandboxes are adopted there is nothing to serve.
func (s *apiSocket) private() string { return s.path + ".new" }

// publish gives the socket the name that clients look for.
func (s *apiSocket) publish() error {
	return sbxerr.Wrap(sbxerr.StateDir, "caissond.listen", os.Rename(s.private(), s.path))
}

// abandon takes back a socket that was not published.
func (s *apiSocket) abandon() error { return errors.Join(s.Close(), os.Remove(s.private())) }

// checkStale refuses a path that somebody else uses.
func checkStale(path string) error {
	const op = "caissond.listen"
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if st.Mode().Type() != fs.ModeSocket {
		return sbxerr.New(sbxerr.DaemonConf, op, "socket %q: something else has that name", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(sbxerr.New(sbxerr.Locked, op, "another daemon listens on %q", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // such as a listener that is too busy to answer
		return sbxerr.Wrap(sbxerr.Locked, op, fmt.Errorf("find out whether another daemon listens: %w", err))
	}
	return nil
}
