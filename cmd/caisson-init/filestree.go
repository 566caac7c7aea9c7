package main

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

// copyOut sends an entry and all below it. A symlink to it is followed, those
// below are not. Directories come before what is in
// them. A FIFO, socket or device is sent as what it is: it has no content.
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
	i, err := listedAt(dir, name)
	if err != nil {
		return failedAt(path, err)
	}
	i.Path = path
	switch i.Type {
	case files.TypeFile:
		return s.sendFile(dir, name, path)
	case files.TypeDir:
		if depth == 0 {
			return failedFor(files.ReasonDepth, path)
		}
		return s.sendDir(dir, name, i, depth)
	}
	return s.send(i.Frame())
}

func (s *fileServer) sendDir(dir int, name string, i files.Info, depth int) error {
	fd, err := openDir(dir, name, false)
	if err != nil {
		return failedAt(i.Path, err)
	}
	defer syscall.Close(fd)
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

// sendFile sends a file as long as it is when it is opened: an archive states
// the length first.
func (s *fileServer) sendFile(dir int, name, path string) error {
	fd, i, err := openRegular(dir, name, path, syscall.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	i.Path = path
	if err := s.send(i.Frame()); err != nil {
		return err
	}
	sent, err := s.sendFrom(fd, path, i.Size)
	if err == nil && sent < i.Size {
		return failedFor(files.ReasonChanged, path)
	}
	return err
}
