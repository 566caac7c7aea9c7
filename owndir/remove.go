package owndir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RemoveFlat removes dir and the regular files in it. It leaves everything else and
// names it: then somebody else put it there. Absent is success.
func RemoveFlat(dir string) (left []string, err error) {
	err = inParent(dir, func(parent int, name string) error {
		left, err = removeFlat(parent, name)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i, name := range left {
		left[i] = filepath.Join(dir, name)
	}
	return left, err
}

func removeFlat(parent int, name string) (left []string, err error) {
	d, err := openDir(parent, name)
	if notOurs(err) {
		return []string{"."}, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(-1)
	errs := []error{err}
	for _, e := range entries {
		if e.Type().IsRegular() {
			errs = append(errs, unix.Unlinkat(int(d.Fd()), e.Name(), 0))
		} else {
			left = append(left, e.Name())
		}
	}
	err = errors.Join(append(errs, d.Close())...)
	if err != nil || len(left) > 0 {
		return left, err
	}
	return nil, unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// RemoveTree removes dir with all that is in it, of whatever kind. Where dir is no
// directory, or a mount is below it, it fails and removes nothing behind that.
// Absent is success.
func RemoveTree(dir string) error {
	err := inParent(dir, removeTree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func removeTree(parent int, name string) error {
	d, err := openDir(parent, name)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() {
			err = removeTree(int(d.Fd()), e.Name())
		} else {
			err = unix.Unlinkat(int(d.Fd()), e.Name(), 0)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", e.Name(), err))
		}
	}
	if err := errors.Join(append(errs, d.Close())...); err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

func openDir(parent int, name string) (*os.File, error) {
	fd, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, fmt.Errorf("something is mounted there: %w", err)
	case err != nil:
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// notOurs: a link, another kind of file, or a mount is where a directory should be.
func notOurs(err error) bool {
	return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EXDEV)
}
