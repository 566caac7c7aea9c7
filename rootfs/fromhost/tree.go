package fromhost

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What can be wrong with one path of the host. Each is a reason to leave that
// path out and say so, not to give up.
var (
	errAbsent  = errors.New("does not exist")
	errHidden  = errors.New("is not readable by everybody")
	errSpecial = errors.New("is no directory, regular file or symbolic link")
	errLoop    = errors.New("is a chain of too many symbolic links")
	errDeep    = errors.New("lies too deep")
	errPseudo  = errors.New("is on a file system of the kernel's own")
	errTooBig  = errors.New("is larger than it may be")
)

// maxDepth bounds the directories above one path, each of which costs an open
// descriptor while it is visited. Installed software stays below 30.
const maxDepth = 100

// pseudo are the file systems whose files are the kernel's answers. They are
// known by their magic number because they may be mounted anywhere.
var pseudo = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
	unix.DEVPTS_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC,
	unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.SELINUX_MAGIC, unix.NSFS_MAGIC, unix.PSTOREFS_MAGIC,
}

// tree reads below one directory, the root of the host, with the rights of
// everybody. Paths are absolute, clean, and without symbolic links in any but
// the last component; resolve makes such paths. Not for concurrent use.
type tree struct {
	// stack holds the directories from the root to the one visited last, open.
	// Neighbours are visited one after the other, so most paths cost one
	// system call and still no component is resolved by name twice.
	stack []level
	dirs  map[string]resolved // what resolve found out about directories
}

type level struct {
	name string
	fd   int
	dev  uint64
}

// info is what is known of one path.
type info struct {
	mode  uint32 // as of stat(2), with the type
	size  int64
	mtime unix.Timespec
	dev   uint64
	ino   uint64
	nlink uint64
}

func (i info) isDir() bool     { return i.mode&unix.S_IFMT == unix.S_IFDIR }
func (i info) isRegular() bool { return i.mode&unix.S_IFMT == unix.S_IFREG }
func (i info) isSymlink() bool { return i.mode&unix.S_IFMT == unix.S_IFLNK }

// What everybody may do. The bits of the group count as well: 0604 keeps a file
// from the members of a group, of which the caller may be one.
const (
	readBits   = unix.S_IRGRP | unix.S_IROTH
	searchBits = unix.S_IXGRP | unix.S_IXOTH
)

func (i info) readable() bool   { return i.mode&readBits == readBits }
func (i info) searchable() bool { return i.mode&searchBits == searchBits }
func (i info) listable() bool   { return i.readable() && i.searchable() }

// openTree opens the directory root, which itself may be reached by any path
// and have any mode: it was chosen by the caller, not by a request.
func openTree(root string) (*tree, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root %q: %w", root, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("stat root %q: %w", root, err), unix.Close(fd))
	}
	return &tree{stack: []level{{fd: fd, dev: st.Dev}}, dirs: map[string]resolved{}}, nil
}

// Close closes all descriptors.
func (t *tree) Close() error {
	var errs []error
	for _, l := range t.stack {
		errs = append(errs, unix.Close(l.fd))
	}
	t.stack = nil
	return errors.Join(errs...)
}

// enter makes dir the top of the stack and returns its descriptor (O_PATH).
func (t *tree) enter(dir string) (int, error) {
	names := split(dir)
	if len(names) > maxDepth || len(dir) >= unix.PathMax {
		return -1, errDeep
	}
	keep := 0
	for keep < len(names) && keep+1 < len(t.stack) && t.stack[keep+1].name == names[keep] {
		keep++
	}
	for _, l := range t.stack[keep+1:] {
		if err := unix.Close(l.fd); err != nil {
			return -1, fmt.Errorf("close %q: %w", l.name, err)
		}
	}
	t.stack = t.stack[:keep+1]
	for _, name := range names[keep:] {
		if err := t.descend(name); err != nil {
			return -1, err
		}
	}
	return t.stack[len(t.stack)-1].fd, nil
}

// descend pushes the subdirectory name of the top, if everybody may search it.
func (t *tree) descend(name string) error {
	top := t.stack[len(t.stack)-1]
	fd, err := unix.Openat(top.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return describe(err)
	}
	dev, err := checkDir(fd, top.dev)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	t.stack = append(t.stack, level{name: name, fd: fd, dev: dev})
	return nil
}

func checkDir(fd int, parentDev uint64) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, describe(err)
	}
	if !infoOf(&st).searchable() {
		return 0, errHidden
	}
	if st.Dev == parentDev {
		return st.Dev, nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, describe(err)
	}
	if slices.Contains(pseudo, int64(fs.Type)) {
		return 0, errPseudo
	}
	return st.Dev, nil
}

// rootInfo stands for the root, whose mode does not matter.
var rootInfo = info{mode: unix.S_IFDIR | 0o755}

// lstat returns what p is, without following it.
func (t *tree) lstat(p string) (info, error) {
	if p == "/" {
		return rootInfo, nil
	}
	fd, err := t.enter(path.Dir(p))
	if err != nil {
		return info{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, path.Base(p), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return info{}, describe(err)
	}
	return infoOf(&st), nil
}

func infoOf(st *unix.Stat_t) info {
	return info{mode: st.Mode, size: st.Size, mtime: st.Mtim, dev: st.Dev, ino: st.Ino, nlink: uint64(st.Nlink)}
}

// readlink returns the text of the symbolic link p.
func (t *tree) readlink(p string) (string, error) {
	fd, err := t.enter(path.Dir(p))
	if err != nil {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, path.Base(p), buf)
	if err != nil {
		return "", describe(err)
	}
	if n == len(buf) || n == 0 {
		return "", errTooBig
	}
	return string(buf[:n]), nil
}

// list returns the names in directory p, sorted, at most limit of them.
func (t *tree) list(p string, limit int) (_ []string, err error) {
	fd, err := t.enter(p)
	if err != nil {
		return nil, err
	}
	// Opened anew: a descriptor made with O_PATH cannot be read.
	rfd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, describe(err)
	}
	f := os.NewFile(uintptr(rfd), p)
	defer func() { err = errors.Join(err, f.Close()) }()
	var st unix.Stat_t
	if err := unix.Fstat(rfd, &st); err != nil {
		return nil, describe(err)
	}
	if len(t.stack) > 1 && !infoOf(&st).listable() {
		return nil, errHidden
	}
	names, err := f.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > limit {
		return nil, errTooBig
	}
	slices.Sort(names)
	return names, nil
}

func statFile(f *os.File) (info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return info{}, describe(err)
	}
	return infoOf(&st), nil
}

// names is list for a path that may hold symbolic links.
func (t *tree) names(p string, limit int) ([]string, error) {
	r, err := t.resolve(p)
	if err != nil {
		return nil, err
	}
	return t.list(r.path, limit)
}

// open opens the regular file p for reading, if everybody may read it, and
// returns what the opened file is. Never blocks on a pipe or a lease.
func (t *tree) open(p string) (*os.File, info, error) {
	fd, err := t.enter(path.Dir(p))
	if err != nil {
		return nil, info{}, err
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	rfd, err := unix.Openat(fd, path.Base(p), flags, 0)
	if err != nil {
		return nil, info{}, describe(err)
	}
	f := os.NewFile(uintptr(rfd), p)
	i, err := statFile(f)
	switch {
	case err != nil:
	case !i.isRegular():
		err = errSpecial
	case !i.readable():
		err = errHidden
	default:
		return f, i, nil
	}
	return nil, info{}, errors.Join(err, f.Close())
}

// readFile returns the content of the file that p, which may hold symbolic
// links, leads to. A file of more than limit bytes is an error.
func (t *tree) readFile(p string, limit int64) (_ []byte, err error) {
	r, err := t.resolve(p)
	if err != nil {
		return nil, err
	}
	f, i, err := t.open(r.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if i.size > limit {
		return nil, errTooBig
	}
	data := make([]byte, i.size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read %q: %w", p, err)
	}
	return data, nil
}

// describe turns the errors that mean something about a path into ours.
func describe(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG):
		return errAbsent
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EINVAL):
		return errSpecial // a link, socket or other thing took the place of what was there
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return errHidden
	}
	return err
}

// skippable reports whether err is about one path only.
func skippable(err error) bool {
	for _, e := range []error{errAbsent, errHidden, errSpecial, errLoop, errDeep, errPseudo} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func split(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}
