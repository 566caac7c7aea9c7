package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// lockDirs takes root and state for this process: a second daemon on either is
// refused. The kernel gives them back when the process ends, however it ends.
func lockDirs(dirs ...string) (unlock func() error, err error) {
	var files []*os.File
	unlock = func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	for _, dir := range dirs {
		f, err := lockDir(dir)
		if err != nil {
			return nil, errors.Join(err, unlock())
		}
		files = append(files, f)
	}
	return unlock, nil
}

func lockDir(dir string) (*os.File, error) {
	const op = "caissond.lock"
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(sbxerr.New(sbxerr.Locked, op, "another caissond holds %q", dir), f.Close())
	}
	if err != nil {
		return nil, errors.Join(sbxerr.Wrap(sbxerr.StateDir, op, fmt.Errorf("lock %q: %w", path, err)), f.Close())
	}
	return f, nil
}
