// Package layerfs reads the unpacked layers of an image as an overlay of them would show
// them, without a mount. The layers are hostile input: a path is resolved below the
// directory of each layer, and a symbolic link is never followed.
//
// An upper layer hides what lies below it: by a whiteout, by an opaque directory, or by
// anything that is no directory (overlayfs.rst, "whiteouts and opaque directories").
package layerfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Layers are the directories of the layers, the topmost first. Names are clean paths
// below their root, without a leading slash.
type Layers []string

// Lstat describes name. The error is fs.ErrNotExist where there is no such file, and where
// the way there leads through a symbolic link.
func (l Layers) Lstat(name string) (info fs.FileInfo, err error) {
	err = l.each(name, func(_ *os.Root, st fs.FileInfo) (bool, error) {
		info = st
		return false, nil
	})
	if err == nil && info == nil {
		err = &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	return info, err
}

// Open opens the regular file name. A file that is not there reads as an empty one.
func (l Layers) Open(name string) (io.ReadCloser, error) {
	f := io.NopCloser(strings.NewReader(""))
	err := l.each(name, func(root *os.Root, st fs.FileInfo) (bool, error) {
		if !st.Mode().IsRegular() {
			return false, fmt.Errorf("the image's /%s is no regular file", name)
		}
		file, err := root.Open(name)
		if err == nil {
			f = file
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// HasEntries reports whether name is a directory that holds something. An entry counts even
// if a whiteout of an upper layer hides it.
func (l Layers) HasEntries(name string) (has bool, err error) {
	err = l.each(name, func(root *os.Root, st fs.FileInfo) (bool, error) {
		if !st.IsDir() {
			return false, nil
		}
		has, err = holdsAny(root, name)
		return !has, err
	})
	return has, err
}

func holdsAny(root *os.Root, name string) (bool, error) {
	dir, err := root.Open(name)
	if err != nil {
		return false, err
	}
	entries, err := dir.ReadDir(-1)
	for _, e := range entries {
		if e.Type()&fs.ModeCharDevice == 0 { // no whiteout
			return true, errors.Join(err, dir.Close())
		}
	}
	return false, errors.Join(err, dir.Close())
}

// each calls fn for name in the layers that show it, or add to it, the topmost first, until
// fn wants no more.
func (l Layers) each(name string, fn func(*os.Root, fs.FileInfo) (more bool, err error)) error {
	for _, dir := range l {
		more, err := inLayer(dir, name, fn)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// inLayer calls fn for name if the layer has it. It returns false where the layer hides
// those below it.
func inLayer(dir, name string, fn func(*os.Root, fs.FileInfo) (bool, error)) (more bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	more = true
	for at := range prefixes(name) {
		st, err := root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return more, nil
		case err != nil:
			return false, err
		case st.Mode()&fs.ModeCharDevice != 0: // a whiteout
			return false, nil
		}
		if st.IsDir() {
			hides, err := opaque(filepath.Join(dir, at))
			if err != nil {
				return false, err
			}
			more = more && !hides
		}
		if at == name {
			again, err := fn(root, st)
			return more && again && st.IsDir(), err
		}
		if !st.IsDir() {
			return false, nil
		}
	}
	return more, nil
}

// prefixes are the directories on the way to name, and name.
func prefixes(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		at := ""
		for _, part := range strings.Split(name, "/") {
			at = path.Join(at, part)
			if !yield(at) {
				return
			}
		}
	}
}

// opaque reports whether an overlay hides what lies below dir.
func opaque(dir string) (bool, error) {
	value := make([]byte, 1)
	n, err := unix.Lgetxattr(dir, "trusted.overlay.opaque", value)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.ERANGE):
		return true, nil // longer than any value that it has
	}
	return n == 1 && value[0] == 'y', err
}
