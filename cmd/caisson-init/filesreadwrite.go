package main

import (
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/initproto/files"
)

// openRegular opens a regular file to read it. O_NONBLOCK keeps a FIFO or device
// from holding it up until that is known.
func openRegular(dir int, name, path string, flags int) (int, files.Info, error) {
	fd, err := openAt(dir, name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
	if err == syscall.ENXIO {
		return 0, files.Info{}, failedFor(files.ReasonNotFile, path) // a socket, or a device without one
	}
	if err != nil {
		return 0, files.Info{}, failedAt(path, err)
	}
	var stat syscall.Stat_t
	err = syscall.Fstat(fd, &stat)
	switch {
	case err != nil:
		err = failedAt(path, err)
	case stat.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		err = failedAt(path, syscall.EISDIR)
	case stat.Mode&syscall.S_IFMT != syscall.S_IFREG:
		err = failedFor(files.ReasonNotFile, path)
	}
	if err != nil {
		syscall.Close(fd)
		return 0, files.Info{}, err
	}
	return fd, infoOf(&stat), nil
}

func (s *fileServer) read(r files.Request) error {
	fd, i, err := openRegular(atCwd, r.Path, r.Path, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	beyond, err := seek(fd, r.Offset, i.Size)
	if err != nil {
		return failedAt(r.Path, err)
	}
	i.Path = r.Path
	if err := s.send(i.Frame()); err != nil || beyond {
		return err
	}
	limit := r.Limit
	if limit == 0 {
		limit = -1
	}
	_, err = s.sendFrom(fd, r.Path, limit)
	return err
}

// seek goes to an offset of a file, and tells where that is beyond all that there
// is. The kernel calls it invalid where no file can be so long.
func seek(fd int, offset, size int64) (beyond bool, err error) {
	if offset == 0 {
		return false, nil
	}
	const last = 1<<63 - 1 - files.MaxData // from which on nothing can be read
	if size > 0 && offset >= size || offset > last {
		return true, nil
	}
	_, err = syscall.Seek(fd, offset, 0)
	if err == syscall.EINVAL {
		return true, nil
	}
	return false, err
}

// write replaces a file in one step: readers see the old one or the new one,
// whole, and a failure leaves the old one and nothing else.
func (s *fileServer) write(r files.Request) error {
	path, err := resolveLinks(r.Path)
	if err != nil {
		return err
	}
	dir, name := splitPath(path)
	if r.Flags&files.FlagParents != 0 {
		if err := makeParents(dir); err != nil {
			return err
		}
	}
	old, mode, err := replaced(r, path)
	if err != nil {
		return err
	}
	fd, err := openDir(atCwd, dir, true)
	if err != nil {
		return failedAt(dir, err)
	}
	defer syscall.Close(fd)
	t, err := newTempFile(fd)
	if err != nil {
		return failedAt(r.Path, err)
	}
	defer t.discard()
	if err := s.receiveFile(t.fd, r.Path); err != nil {
		return err
	}
	if old != nil && (old.Uid != uint32(syscall.Getuid()) || old.Gid != uint32(syscall.Getgid())) {
		_ = syscall.Fchown(t.fd, int(old.Uid), int(old.Gid)) // only root can keep another owner
	}
	if err := syscall.Fchmod(t.fd, mode); err != nil {
		return failedAt(r.Path, err)
	}
	if err := t.publish(name); err != nil {
		return failedAt(r.Path, err)
	}
	return s.stat(r.Path, true)
}

// replaced describes the file that a write replaces, if there is one, and
// returns the mode of the new one.
func replaced(r files.Request, path string) (old *syscall.Stat_t, mode uint32, err error) {
	mode = defaultFileMode
	stat, err := statAt(atCwd, path, atSymlinkNofollow)
	switch {
	case err == syscall.ENOENT:
	case err != nil:
		return nil, 0, failedAt(r.Path, err)
	case stat.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return nil, 0, failedAt(r.Path, syscall.EISDIR)
	case stat.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return nil, 0, failedFor(files.ReasonNotFile, r.Path)
	default:
		old, mode = &stat, stat.Mode&permissions
	}
	if r.Flags&files.FlagMode != 0 {
		mode = r.Mode & permissions
	}
	return old, mode, nil
}

// resolveLinks follows symlinks in the last element of path, as open(2) would:
// what is replaced is the file, not the symlink.
func resolveLinks(path string) (string, error) {
	const most = 40 // as the kernel
	asked := path
	for range most {
		i, err := infoAt(atCwd, path, atSymlinkNofollow)
		if i.Type != files.TypeSymlink {
			return path, nil // what is wrong shows when it is used
		}
		if err != nil {
			return "", failedAt(asked, err)
		}
		if strings.HasPrefix(i.Link, "/") {
			path = i.Link
			continue
		}
		dir, _ := splitPath(path)
		path = below(dir, i.Link)
	}
	return "", failedAt(asked, syscall.ELOOP)
}

// receiveFile writes all data up to End.
func (s *fileServer) receiveFile(fd int, path string) error {
	for {
		kind, body, done, err := s.input()
		switch {
		case err != nil || done:
			return err
		case kind != files.KindData:
			return errFilesProtocol
		}
		if err := writeFull(fd, body); err != nil {
			return failedAt(path, err)
		}
	}
}

// tempFile is a file that has no name yet, where the file system can do that
// (open(2), O_TMPFILE): then it is gone with this process. Elsewhere it has a
// temporary one.
type tempFile struct {
	dir, fd int
	name    string // of the file, to be removed; or empty
}

func newTempFile(dir int) (*tempFile, error) {
	const mode = 0o600
	t := &tempFile{dir: dir}
	var err error
	if t.fd, err = openAt(dir, ".", oTmpfile|syscall.O_WRONLY, mode); err == nil {
		return t, nil
	}
	switch err {
	case syscall.EOPNOTSUPP, syscall.EISDIR, syscall.EINVAL, syscall.ENOENT:
	default:
		return nil, err
	}
	t.name, err = withTempName(func(name string) (err error) {
		t.fd, err = openAt(dir, name, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_NOFOLLOW, mode)
		return err
	})
	return t, err
}

// publish gives the file its name in one step.
func (t *tempFile) publish(name string) (err error) {
	if t.name == "" {
		self := "/proc/self/fd/" + decimal(t.fd)
		t.name, err = withTempName(func(temp string) error { return linkAt(atCwd, self, t.dir, temp, atSymlinkFollow) })
		if err != nil {
			t.name = ""
			return err
		}
	}
	if err := renameAt(t.dir, t.name, t.dir, name, 0); err != nil {
		return err
	}
	t.name = ""
	return nil
}

// discard removes what was not published.
func (t *tempFile) discard() {
	syscall.Close(t.fd)
	if t.name != "" {
		_ = unlinkAt(t.dir, t.name, 0) // there is no one to tell and nothing else to try
	}
}

func decimal(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return decimal(n/10) + string(rune('0'+n%10))
}
