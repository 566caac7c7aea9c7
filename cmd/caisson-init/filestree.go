package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

// copyOut sends an entry and all below it. A symlink to it is followed, those
// below are not. Directories come before what is in them. A FIFO, socket or device
// is sent as what it is: it has no content. So is, as if it were a device, what the
// sandbox's user may not read, and a file system of the kernel's own, such as that at
// /proc: who copies is told that it was left out.
func (s *fileServer) copyOut(path string) error {
	path, err := resolveLinks(path)
	if err != nil {
		return err
	}
	return s.sendTree(atCwd, path, "", files.MaxDepth)
}

// sendTree sends the entry name of dir, as path in the answer.
func (s *fileServer) sendTree(dir int, name, path string, depth int) error {
	if len(path) > files.MaxPath {
		return failedAt(path, syscall.ENAMETOOLONG)
	}
	fd, i, err := openEntry(dir, name, path)
	i.Path = path
	if path != "" && isDenied(err) {
		return s.sendClosed(i)
	}
	if err != nil {
		return err
	}
	switch i.Type {
	case files.TypeFile:
		defer syscall.Close(fd)
		return s.sendFile(fd, i)
	case files.TypeDir:
		defer syscall.Close(fd)
		if path != "" && isKernels(fd) && !isKernels(dir) {
			return s.sendClosed(i)
		}
		if depth == 0 {
			return failedFor(files.ReasonDepth, path)
		}
		return s.sendDir(fd, i, depth)
	case files.TypeSymlink:
		if path == "" { // it has just come; others were followed
			return failedAt(path, syscall.ELOOP)
		}
	}
	return s.send(i.Frame())
}

// sendClosed sends an entry as one whose content nobody gets.
func (s *fileServer) sendClosed(i files.Info) error {
	i.Type = files.TypeDevice
	return s.send(i.Frame())
}

// isDenied holds for the errors of opening what its owner keeps from others.
func isDenied(err error) bool {
	failed, ok := err.(*fileFailure)
	return ok && (failed.Errno == syscall.EACCES || failed.Errno == syscall.EPERM)
}

// isKernels holds in proc(5), sysfs(5) and cgroups(7).
func isKernels(fd int) bool {
	const proc, sysfs, cgroup, cgroup2 = 0x9fa0, 0x62656572, 0x27e0eb, 0x63677270 // statfs(2)
	var stat syscall.Statfs_t
	if syscall.Fstatfs(fd, &stat) != nil {
		return false
	}
	switch stat.Type {
	case proc, sysfs, cgroup, cgroup2:
		return true
	}
	return false
}

// openEntry describes an entry, and opens it if it is a file or a directory. One
// that becomes of another kind meanwhile is looked at again.
func openEntry(dir int, name, path string) (fd int, i files.Info, err error) {
	for range changes {
		if i, err = listedAt(dir, name); err != nil {
			return -1, i, failedAt(path, err)
		}
		switch i.Type {
		case files.TypeFile:
			fd, i, err = openRegular(dir, name, path, syscall.O_NOFOLLOW)
		case files.TypeDir:
			fd, err = openDir(dir, name, false)
			err = failedAt(path, err)
		default:
			return -1, i, nil
		}
		if !isOtherKind(err) {
			break
		}
	}
	return fd, i, err
}

// isOtherKind holds for the errors of opening what is no file, or no directory.
func isOtherKind(err error) bool {
	failed, ok := err.(*fileFailure)
	if !ok {
		return false
	}
	switch failed.Errno {
	case syscall.EISDIR, syscall.ENOTDIR, syscall.ELOOP:
		return true
	}
	return failed.Reason == files.ReasonNotFile
}

func (s *fileServer) sendDir(fd int, i files.Info, depth int) error {
	list, err := names(fd)
	if err != nil {
		return failedAt(i.Path, err)
	}
	if err := s.send(i.Frame()); err != nil {
		return err
	}
	for _, name := range list {
		// What was removed since it was listed is no failure.
		if err := s.sendTree(fd, name, below(i.Path, name), depth-1); err != nil && !isAbsent(err) {
			return err
		}
	}
	return nil
}

// sendFile sends a file. An archive states the length first, so of a file that fits
// in one frame it is that of what was read: whatever becomes of it meanwhile, and
// also where the file system does not know the length (proc(5), sysfs(5)). A longer
// one is sent as long as it is when it is opened.
func (s *fileServer) sendFile(fd int, i files.Info) error {
	first, err := s.fillRoom(fd)
	if err != nil {
		return failedAt(i.Path, err)
	}
	if i.Size, err = sizeOf(fd, i, first); err != nil {
		return err
	}
	if err := s.send(i.Frame()); err != nil {
		return err
	}
	if err := s.sendRoom(first); err != nil {
		return err
	}
	rest := i.Size - int64(first)
	sent, err := s.sendFrom(fd, i.Path, rest)
	if err == nil && sent < rest || isAbsent(err) { // which would be no failure for sendDir
		return failedFor(files.ReasonChanged, i.Path)
	}
	return err
}

// sizeOf returns the length to state for a file of which first bytes were read.
func sizeOf(fd int, i files.Info, first int) (int64, error) {
	if first < files.MaxData {
		return int64(first), nil
	}
	if i.Size >= int64(first) {
		return i.Size, nil
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return 0, failedAt(i.Path, err)
	}
	if stat.Size < int64(first) { // or its length is not known, and it does not fit
		return 0, failedFor(files.ReasonChanged, i.Path)
	}
	return stat.Size, nil
}
