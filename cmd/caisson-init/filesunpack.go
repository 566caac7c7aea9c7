package main

import (
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

// copyIn makes the entries that are sent below a directory. All is made in a
// new directory there first, so a failure or an end in the middle leaves
// nothing, and no symlink of the archive or of the target is ever followed.
func (s *fileServer) copyIn(path string) (done files.Done, err error) {
	target, err := openDir(atCwd, path, true)
	if err != nil {
		return done, failedAt(path, err)
	}
	defer syscall.Close(target)
	name, err := withTempName(func(name string) error {
		return pathCall(syscall.SYS_MKDIRAT, target, name, 0o700)
	})
	if err != nil {
		return done, failedAt(path, err)
	}
	defer func() {
		if left := removeAll(target, name, name, files.MaxDepth+1); err == nil {
			err = left
		}
	}()
	staging, err := openDir(target, name, false)
	if err != nil {
		return done, failedAt(path, err)
	}
	defer syscall.Close(staging)
	u := unpacker{conn: &s.fileConn, root: staging, parent: -1}
	defer u.leave()
	if err := u.receive(); err != nil {
		return done, err
	}
	return u.done, u.settle(target)
}

// unpacker makes entries below root.
type unpacker struct {
	conn *fileConn
	root int
	done files.Done

	parent     int    // the directory of the last entry, or -1
	parentPath string // below root
	closed     []files.Info
}

func (u *unpacker) receive() error {
	for {
		kind, body, done, err := u.conn.input()
		switch {
		case err != nil || done:
			return err
		case kind != files.KindEntry:
			return errFilesProtocol
		}
		i, err := files.DecodeInfo(body)
		if err != nil {
			return err
		}
		if err := u.make(i); err != nil {
			return err
		}
		u.done.Entries++
	}
}

func (u *unpacker) make(i files.Info) error {
	dir, name := "", i.Path
	if at := strings.LastIndexByte(i.Path, '/'); at >= 0 {
		dir, name = i.Path[:at], i.Path[at+1:]
	}
	if err := u.enter(dir); err != nil {
		return err
	}
	switch i.Type {
	case files.TypeDir:
		return u.makeDir(name, i)
	case files.TypeFile:
		return u.makeFile(name, i)
	case files.TypeSymlink:
		return u.replace(i.Path, name, func() error { return symlinkAt(i.Link, u.parent, name) })
	case files.TypeLink:
		return u.makeLink(name, i)
	}
	return errFilesProtocol
}

// enter makes dir the parent of what is made next.
func (u *unpacker) enter(dir string) error {
	if u.parent >= 0 && dir == u.parentPath {
		return nil
	}
	u.leave()
	fd, err := openBelow(u.root, dir, true)
	if err != nil {
		return err
	}
	u.parent, u.parentPath = fd, dir
	return nil
}

func (u *unpacker) leave() {
	if u.parent >= 0 {
		syscall.Close(u.parent)
	}
	u.parent = -1
}

// openBelow opens a directory below root, element by element and without
// following a symlink. With create, it makes what is missing.
func openBelow(root int, path string, create bool) (int, error) {
	fd, err := openDir(root, ".", false)
	if err != nil {
		return -1, failedAt(path, err)
	}
	for rest := path; rest != ""; {
		name, after, _ := strings.Cut(rest, "/")
		next, err := openDir(fd, name, false)
		if err == syscall.ENOENT && create {
			if err = pathCall(syscall.SYS_MKDIRAT, fd, name, defaultDirMode); err == nil {
				next, err = openDir(fd, name, false)
			}
		}
		if err == syscall.ENOTDIR {
			err = inTheWay(fd, name, path)
		}
		syscall.Close(fd)
		if err != nil {
			return -1, failedAt(path, err)
		}
		fd, rest = next, after
	}
	return fd, nil
}

// inTheWay tells a symlink from what else is no directory.
func inTheWay(dir int, name, path string) error {
	stat, err := statAt(dir, name, atSymlinkNofollow)
	if err == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		return failedFor(files.ReasonLink, path)
	}
	return syscall.ENOTDIR
}

// makeDir makes a directory in which its owner can work for now; settle gives
// it a stricter mode.
func (u *unpacker) makeDir(name string, i files.Info) error {
	const workable = 0o700
	if i.Mode&workable != workable {
		u.closed = append(u.closed, i)
	}
	err := pathCall(syscall.SYS_MKDIRAT, u.parent, name, uintptr(i.Mode&permissions|workable))
	if err == syscall.EEXIST {
		fd, err := openBelow(u.parent, name, false)
		if err != nil {
			return failedFor(files.ReasonLink, i.Path)
		}
		defer syscall.Close(fd)
		return failedAt(i.Path, syscall.Fchmod(fd, i.Mode&permissions|workable))
	}
	return failedAt(i.Path, err)
}

// replace calls make, once more after removing what has the name. That is no
// directory that holds something.
func (u *unpacker) replace(path, name string, make func() error) error {
	err := make()
	if err == syscall.EEXIST {
		if err = unlinkAt(u.parent, name, 0); err == nil {
			err = make()
		}
	}
	return failedAt(path, err)
}

func (u *unpacker) makeFile(name string, i files.Info) error {
	fd := -1
	if err := u.replace(i.Path, name, func() (err error) {
		fd, err = openAt(u.parent, name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
		return err
	}); err != nil {
		return err
	}
	defer syscall.Close(fd)
	for left := i.Size; left > 0; {
		kind, body, done, err := u.conn.input()
		switch {
		case err != nil:
			return err
		case done || kind != files.KindData || int64(len(body)) > left:
			return errFilesProtocol
		}
		if err := writeSparse(fd, body); err != nil {
			return failedAt(i.Path, err)
		}
		left -= int64(len(body))
		u.done.Bytes += int64(len(body))
	}
	if err := endSparse(fd); err != nil {
		return failedAt(i.Path, err)
	}
	if err := syscall.Fchmod(fd, i.Mode&permissions); err != nil {
		return failedAt(i.Path, err)
	}
	_ = setMtime(fd, i.Mtime, i.Nanos) // a file system that cannot hold the time has still got the file
	return nil
}

// makeLink makes a further name of a file that was made before.
func (u *unpacker) makeLink(name string, i files.Info) error {
	dir, target := "", i.Link
	if at := strings.LastIndexByte(i.Link, '/'); at >= 0 {
		dir, target = i.Link[:at], i.Link[at+1:]
	}
	from, err := openBelow(u.root, dir, false)
	if err != nil {
		return err
	}
	defer syscall.Close(from)
	return u.replace(i.Path, name, func() error { return linkAt(from, target, u.parent, name, 0) })
}

// settle moves all from root to target. It looks for what is in the way first,
// so that a conflict changes nothing.
func (u *unpacker) settle(target int) error {
	u.leave()
	m := merger{}
	if err := m.merge(u.root, target, ""); err != nil {
		return err
	}
	m.apply = true
	if err := m.merge(u.root, target, ""); err != nil {
		return err
	}
	for n := len(u.closed) - 1; n >= 0; n-- { // the deepest first: a closed one cannot be passed
		i := u.closed[n]
		fd, err := openBelow(target, i.Path, false)
		if err != nil {
			return err
		}
		err = syscall.Fchmod(fd, i.Mode&permissions)
		syscall.Close(fd)
		if err != nil {
			return failedAt(i.Path, err)
		}
	}
	return nil
}

// merger moves entries into a directory that may have some of them. Without
// apply, it only looks whether that would work.
type merger struct{ apply bool }

func (m merger) merge(from, to int, path string) error {
	list, err := names(from)
	if err != nil {
		return failedAt(path, err)
	}
	if _, err := syscall.Seek(from, 0, 0); err != nil { // for the next time
		return failedAt(path, err)
	}
	for _, name := range list {
		if err := m.entry(from, to, name, below(path, name)); err != nil {
			return err
		}
	}
	return nil
}

func (m merger) entry(from, to int, name, path string) error {
	have, err := statAt(to, name, atSymlinkNofollow)
	if err != nil && err != syscall.ENOENT {
		return failedAt(path, err)
	}
	absent := err == syscall.ENOENT
	comes, err := statAt(from, name, atSymlinkNofollow)
	if err != nil {
		return failedAt(path, err)
	}
	const format, dir = syscall.S_IFMT, syscall.S_IFDIR
	switch {
	case absent || comes.Mode&format != dir && have.Mode&format != dir:
		if !m.apply {
			return nil
		}
		return failedAt(path, renameAt(from, name, to, name, 0))
	case comes.Mode&format != dir:
		return failedAt(path, syscall.EISDIR)
	case have.Mode&format == syscall.S_IFLNK:
		return failedFor(files.ReasonLink, path)
	case have.Mode&format != dir:
		return failedAt(path, syscall.ENOTDIR)
	}
	return m.dir(from, to, name, path)
}

func (m merger) dir(from, to int, name, path string) error {
	source, err := openDir(from, name, false)
	if err != nil {
		return failedAt(path, err)
	}
	defer syscall.Close(source)
	target, err := openDir(to, name, false)
	if err != nil {
		return failedAt(path, err)
	}
	defer syscall.Close(target)
	return m.merge(source, target, path)
}
