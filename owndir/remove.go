package owndir

import (
	"errors"
	"fmt"
	"io"
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

const (
	maxDepth  = 32   // of directories that are open at once
	batchSize = 1024 // names that are read at once
)

// RemoveTree removes dir with all that is in it, of whatever kind. Where dir is no
// directory, or a mount is below it, it fails and removes nothing behind that.
// Absent is success.
//
// A sandbox may have made the tree, with millions of files and of any depth. So names are
// read in batches, and what lies too deep is moved up into dir first.
func RemoveTree(dir string) error {
	err := inParent(dir, func(parent int, name string) error { return (&tree{}).remove(parent, name, 0) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tree is one that is being removed.
type tree struct {
	top   int // descriptor of the first directory
	moved int // directories that were moved up into it
}

// remove removes the directory name in parent, which is depth directories below the first.
func (t *tree) remove(parent int, name string, depth int) error {
	d, err := openDir(parent, name)
	if err != nil {
		return err
	}
	if depth == 0 {
		t.top = int(d.Fd())
	}
	if err := errors.Join(t.empty(d, depth), d.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// empty removes the entries of d. It goes on after an error, as long as anything goes.
func (t *tree) empty(d *os.File, depth int) error {
	for {
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return err
		}
		entries, err := d.ReadDir(batchSize)
		if errors.Is(err, io.EOF) {
			return nil
		}
		errs := []error{err}
		gone := 0
		for _, e := range entries {
			if err := t.removeEntry(int(d.Fd()), e, depth); err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", e.Name(), err))
				continue
			}
			gone++
		}
		if gone == 0 {
			return errors.Join(errs...)
		}
	}
}

func (t *tree) removeEntry(parent int, e fs.DirEntry, depth int) error {
	switch {
	case !e.IsDir():
		return unix.Unlinkat(parent, e.Name(), 0)
	case depth < maxDepth:
		return t.remove(parent, e.Name(), depth+1)
	}
	for {
		t.moved++
		err := unix.Renameat(parent, e.Name(), t.top, fmt.Sprintf(".moved-%d", t.moved))
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
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
