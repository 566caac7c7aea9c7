package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson/sbxerr"
)

// listen makes the API's socket for those whom the door lets through. A socket
// that nobody answers on was left by a daemon that was killed, and is replaced.
func listen(path string, open door) (*net.UnixListener, error) {
	const op = "caissond.listen"
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Made under a name that nobody looks for, because between bind and chmod
	// the umask alone says who may connect.
	private := path + ".new"
	if err := os.Remove(private); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: private, Net: "unix"})
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	l.SetUnlinkOnClose(false) // removed by name, when the daemon is done
	err = errors.Join(os.Chown(private, -1, open.gid), os.Chmod(private, open.mode))
	if err == nil { // only then it may be found
		err = os.Rename(private, path)
	}
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, l.Close(), os.Remove(private)))
	}
	return l, nil
}

func removeStale(path string) error {
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
	if err := os.Remove(path); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, fmt.Errorf("remove a stale socket: %w", err))
	}
	return nil
}
