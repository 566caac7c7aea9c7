package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

const (
	defaultDirMode  = 0o755
	defaultFileMode = 0o644
)

func (s *fileServer) makeDir(r files.Request) error {
	mode := uint32(defaultDirMode)
	if r.Flags&files.FlagMode != 0 {
		mode = r.Mode & permissions
	}
	parents := r.Flags&files.FlagParents != 0
	if parents {
		dir, _ := splitPath(r.Path)
		if err := makeParents(dir); err != nil {
			return err
		}
	}
	err := syscall.Mkdir(r.Path, mode)
	if err == syscall.EEXIST && parents {
		err = isDir(r.Path)
	}
	if err != nil {
		return failedAt(r.Path, err)
	}
	return s.stat(r.Path, true)
}

// makeParents makes path and what is missing above it.
func makeParents(path string) error {
	err := syscall.Mkdir(path, defaultDirMode)
	if err == syscall.ENOENT && path != "/" {
		dir, _ := splitPath(path)
		if err := makeParents(dir); err != nil {
			return err
		}
		err = syscall.Mkdir(path, defaultDirMode)
	}
	if err != nil && isDir(path) == nil {
		return nil // also what may not be made here, as it is there: EROFS, EACCES
	}
	return failedAt(path, err)
}

// isDir returns nil for a directory, also behind a symlink, and EEXIST for all else.
func isDir(path string) error {
	stat, err := statAt(atCwd, path, 0)
	if err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return syscall.EEXIST
	}
	return nil
}

func (s *fileServer) move(r files.Request) error {
	flags := uintptr(renameNoReplace)
	if r.Flags&files.FlagReplace != 0 {
		flags = 0
	}
	if err := renameAt(atCwd, r.Path, atCwd, r.To, flags); err != nil {
		return failedAt(blamed(r, err), err)
	}
	return s.stat(r.To, false)
}

// blamed returns which of the two paths of a move an error is about.
func blamed(r files.Request, err error) string {
	switch err {
	case syscall.EEXIST, syscall.ENOTEMPTY, syscall.EISDIR, syscall.EXDEV:
		return r.To
	case syscall.ENOENT:
		if _, err := statAt(atCwd, r.Path, atSymlinkNofollow); err == nil {
			return r.To
		}
	}
	return r.Path
}

func (s *fileServer) remove(r files.Request) error {
	if r.Flags&files.FlagRecursive != 0 {
		return removeAll(atCwd, r.Path, r.Path, files.MaxDepth)
	}
	err := unlinkAt(atCwd, r.Path, 0)
	if err == syscall.EISDIR {
		err = unlinkAt(atCwd, r.Path, atRemoveDir)
	}
	return failedAt(r.Path, err)
}

// removeAll removes an entry and all below it. It follows no symlink; path is
// for errors.
func removeAll(dir int, name, path string, depth int) error {
	err := unlinkAt(dir, name, 0)
	if err != syscall.EISDIR {
		return failedAt(path, err)
	}
	if depth == 0 {
		return failedFor(files.ReasonDepth, path)
	}
	if err := removeBelow(dir, name, path, depth); err != nil {
		return err
	}
	return failedAt(path, unlinkAt(dir, name, atRemoveDir))
}

func removeBelow(dir int, name, path string, depth int) error {
	fd, err := openDir(dir, name, false)
	if err != nil {
		return failedAt(path, err)
	}
	defer syscall.Close(fd)
	list, err := names(fd)
	if err != nil {
		return failedAt(path, err)
	}
	for _, name := range list {
		if err := removeAll(fd, name, below(path, name), depth-1); err != nil && !isAbsent(err) {
			return err
		}
	}
	return nil
}

func isAbsent(err error) bool {
	failed, ok := err.(*fileFailure)
	return ok && failed.Errno == syscall.ENOENT
}
