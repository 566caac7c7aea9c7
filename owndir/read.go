package owndir

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file of at most limit bytes. It waits for nobody: a FIFO, a
// device, a link or a socket in place of the file is an error.
func ReadFile(path string, limit int64) (data []byte, err error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		err = fmt.Errorf("%q is larger than %d bytes", path, limit)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return data, nil
}

// Open opens a regular file to read it, and waits for nobody.
func Open(path string) (f *os.File, err error) {
	err = inParent(path, func(parent int, name string) error {
		fd, err := openAt(parent, name, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), path)
		st, err := f.Stat()
		if err == nil && !st.Mode().IsRegular() {
			err = errors.New("it is not a regular file")
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenDir opens a directory with O_PATH.
func OpenDir(path string) (f *os.File, err error) {
	err = inParent(path, func(parent int, name string) error {
		fd, err := openAt(parent, name, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			f = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	return f, err
}
