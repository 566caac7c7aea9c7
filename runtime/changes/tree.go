package changes

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const directory = "directory" // a type

// Tree are files as they are seen inside: those of a directory, or of an overlay of two. All is
// looked up here, without a mount: the layer below may be the same of two trees, and then what both
// have from it need not be compared.
type Tree struct {
	Top   *os.File // directory
	Under *os.File // directory of the layer below; nil: there is none
	Base  uint32   // what the ids of Top begin with; those of Under begin with 0
}

// dir is a directory of a tree. The zero value has nothing.
type dir struct {
	tree       *Tree
	top, under *os.File // nil: that layer has nothing here
	name       string   // of under, below the root
}

func (t *Tree) open() (d dir, err error) {
	d.tree, d.name = t, "."
	if d.top, err = openDir(int(t.Top.Fd()), "."); err == nil && t.Under != nil {
		d.under, err = openDir(int(t.Under.Fd()), ".")
	}
	if err != nil {
		d.close()
	}
	return d, err
}

func (d dir) close() {
	for _, f := range []*os.File{d.top, d.under} {
		if f != nil {
			f.Close() // it was only read
		}
	}
}

// sharesUnder reports whether two directories have the same layer below them.
func (d dir) sharesUnder(o dir) bool {
	if d.under == nil || o.under == nil {
		return false
	}
	var a, b unix.Stat_t
	return unix.Fstat(int(d.under.Fd()), &a) == nil && unix.Fstat(int(o.under.Fd()), &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// file is what a directory has under a name.
type file struct {
	in   *os.File // directory of a layer; nil: there is nothing
	st   unix.Stat_t
	base uint32 // what its ids begin with
	top  bool   // it is of the upper layer
}

func (d dir) stat(name string) (f file, err error) {
	if d.top != nil {
		err := unix.Fstatat(int(d.top.Fd()), name, &f.st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && isWhiteout(&f.st) {
			return file{}, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			f.in, f.base, f.top = d.top, d.tree.Base, true
			return f, err
		}
	}
	if d.under != nil {
		err := unix.Fstatat(int(d.under.Fd()), name, &f.st, unix.AT_SYMLINK_NOFOLLOW)
		if !errors.Is(err, unix.ENOENT) {
			f.in = d.under
			return f, err
		}
	}
	return file{}, nil
}

func (f file) inode() inode { return inode{f.st.Dev, f.st.Ino} }
func (f file) uid() uint32  { return f.st.Uid - f.base }
func (f file) gid() uint32  { return f.st.Gid - f.base }

// sharedWith reports whether two trees have one file, with all below it, from the layer below them.
func (f file) sharedWith(o file) bool {
	return f.in != nil && o.in != nil && !f.top && !o.top && f.inode() == o.inode()
}

func (f file) state(name string) State {
	if f.in == nil {
		return State{}
	}
	s := stateOf(&f.st)
	if s.Type == "symlink" {
		s.Link = linkAt(int(f.in.Fd()), name)
	}
	return s
}

// open opens a regular file to read it.
func (f file) open(name string) (*os.File, error) {
	fd, err := unix.Openat(int(f.in.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// child opens the directory f of d.
func (d dir) child(f file, name string) (next dir, err error) {
	next = dir{tree: d.tree, name: path.Join(d.name, name)}
	if !f.top {
		next.under, err = openDir(int(d.under.Fd()), name)
		return next, err
	}
	if next.top, err = openDir(int(d.top.Fd()), name); err != nil || d.tree.Under == nil {
		return next, err
	}
	if err = next.findUnder(d, name); err != nil {
		next.close()
	}
	return next, err
}

// findUnder opens the directory that d, an entry of parent, merges with (overlayfs.rst).
func (d *dir) findUnder(parent dir, name string) (err error) {
	if to := attribute(int(d.top.Fd()), "redirect"); to != "" {
		if d.name = strings.TrimPrefix(to, "/"); d.name == to {
			d.name = path.Join(parent.name, to)
		}
		fd, err := OpenBeneath(int(d.tree.Under.Fd()), d.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
		if err == nil {
			d.under = os.NewFile(uintptr(fd), d.name)
		}
		return ignoreAbsent(err)
	}
	if parent.under == nil || attribute(int(d.top.Fd()), "opaque") == "y" {
		return nil
	}
	d.under, err = openDir(int(parent.under.Fd()), name)
	return ignoreAbsent(err)
}

// ignoreAbsent returns the error of opening a directory, unless there is none.
func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}
