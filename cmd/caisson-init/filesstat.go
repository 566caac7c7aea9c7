package main

import (
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

func (s *fileServer) stat(path string, follow bool) error {
	flags := atSymlinkNofollow
	if follow {
		flags = 0
	}
	i, err := infoAt(atCwd, path, flags)
	if err != nil {
		return failedAt(path, err)
	}
	i.Path = path
	return s.send(i.Frame())
}

// changes is how often an entry is looked at anew that became another between two
// calls.
const changes = 20

// infoAt describes an entry, without its path. With the error of a symlink that is
// there and cannot be read comes all but its target.
func infoAt(dir int, name string, flags int) (files.Info, error) {
	var i files.Info
	for range changes {
		stat, err := statAt(dir, name, flags)
		if err != nil {
			return files.Info{}, err
		}
		i = infoOf(&stat)
		if i.Type != files.TypeSymlink {
			return i, nil
		}
		i.Link, err = readLinkAt(dir, name)
		if err != syscall.EINVAL && err != syscall.ENOENT { // it is none, or gone, by now
			return i, err
		}
	}
	return i, syscall.ENOENT // as the symlinks of a process that has ended (proc_pid_exe(5))
}

// listedAt describes an entry of a directory. A symlink that cannot be read comes
// without its target: in /proc those of other users' processes.
func listedAt(dir int, name string) (files.Info, error) {
	i, err := infoAt(dir, name, atSymlinkNofollow)
	if i.Type == files.TypeSymlink {
		err = nil
	}
	return i, err
}

func infoOf(stat *syscall.Stat_t) files.Info {
	return files.Info{
		Type: typeOf(stat.Mode), Mode: stat.Mode & 0o7777, UID: stat.Uid, GID: stat.Gid,
		Size: max(stat.Size, 0), Mtime: files.BoundTime(int64(stat.Mtim.Sec)), Nanos: uint32(stat.Mtim.Nsec),
	}
}

func typeOf(mode uint32) files.Type {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return files.TypeFile
	case syscall.S_IFDIR:
		return files.TypeDir
	case syscall.S_IFLNK:
		return files.TypeSymlink
	case syscall.S_IFIFO:
		return files.TypeFIFO
	case syscall.S_IFSOCK:
		return files.TypeSocket
	}
	return files.TypeDevice
}

// names returns the names in an open directory, sorted, without "." and "..".
func names(fd int) ([]string, error) {
	var list []string
	buf := make([]byte, 16<<10)
	for {
		n, err := syscall.ReadDirent(fd, buf)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, err
		case n <= 0:
			slices.Sort(list)
			return list, nil
		}
		_, _, list = syscall.ParseDirent(buf[:n], -1, list)
	}
}

// below joins a path in an answer.
func below(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func (s *fileServer) list(r files.Request) (files.Done, error) {
	fd, err := openDir(atCwd, r.Path, true)
	if err != nil {
		return files.Done{}, failedAt(r.Path, err)
	}
	l := lister{conn: &s.fileConn, left: r.Limit}
	if err := l.dir(fd, "", r.Depth); err != nil {
		if errno, ok := err.(syscall.Errno); ok {
			err = failedAt(r.Path, errno)
		}
		return files.Done{}, err
	}
	return files.Done{Truncated: l.truncated}, nil
}

// lister sends the entries below a directory.
type lister struct {
	conn      *fileConn
	left      int64
	truncated bool
}

// dir sends the entries of one directory, then those below it, and closes fd.
// What goes away meanwhile is left out, as is what is in a directory that may not be
// read; an errno means that this one cannot.
func (l *lister) dir(fd int, path string, depth uint32) error {
	defer syscall.Close(fd)
	list, err := names(fd)
	if err != nil {
		return err
	}
	var dirs []string
	for _, name := range list {
		i, err := listedAt(fd, name)
		if err != nil {
			continue
		}
		if i.Path = below(path, name); len(i.Path) > files.MaxPath {
			l.truncated = true
			continue
		}
		if l.left <= 0 {
			l.truncated = true
			return nil
		}
		l.left--
		if err := l.conn.send(i.Frame()); err != nil {
			return err
		}
		if i.Type == files.TypeDir {
			dirs = append(dirs, name)
		}
	}
	if depth <= 1 {
		return nil
	}
	return l.below(fd, path, dirs, depth-1)
}

func (l *lister) below(fd int, path string, dirs []string, depth uint32) error {
	for _, name := range dirs {
		sub, err := openDir(fd, name, false)
		if err == nil {
			err = l.dir(sub, below(path, name), depth)
		}
		if _, unreadable := err.(syscall.Errno); err != nil && !unreadable {
			return err
		}
		l.truncated = l.truncated || isShortage(err)
	}
	return nil
}

// isShortage holds for errors that are not about the directory that could not be read:
// each level that is worked on takes a descriptor.
func isShortage(err error) bool {
	return err == syscall.EMFILE || err == syscall.ENFILE || err == syscall.ENOMEM
}

// splitPath returns the directory and the last element of an absolute path.
func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/", path[i+1:]
	}
	return path[:i], path[i+1:]
}
