package layertar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names of whiteouts (image-spec, layer.md).
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
)

// Changes writes the upper layer of an overlay that nobody uses any more. Its ids begin at
// base. Changes of the files named by skip are left out.
func Changes(upper *os.Root, base uint32, skip []string, w io.Writer) error {
	c := writer{from: upper, tar: tar.NewWriter(w), links: map[inode]string{}, adapt: func(h *tar.Header) {
		h.Uid, h.Gid = h.Uid-int(base), h.Gid-int(base)
	}}
	err := fs.WalkDir(upper.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." || slices.Contains(skip, name) {
			return err
		}
		return c.change(name, entry)
	})
	return errors.Join(err, c.tar.Close())
}

func (w *writer) change(name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if st := info.Sys().(*syscall.Stat_t); info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0 {
		return w.whiteout(path.Join(path.Dir(name), whiteoutPrefix+path.Base(name)))
	}
	if err := w.entry(name, name, info); err != nil || !info.IsDir() {
		return err
	}
	opaque, err := isOpaque(w.from, name)
	if err != nil || !opaque {
		return err
	}
	return w.whiteout(path.Join(name, opaqueName))
}

func (w *writer) whiteout(name string) error {
	return w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX})
}

// isOpaque reports whether an overlay hides what lower layers have in a directory
// (overlayfs.rst).
func isOpaque(root *os.Root, name string) (bool, error) {
	dir, err := root.Open(name)
	if err != nil {
		return false, err
	}
	value := make([]byte, 1)
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay.opaque", value)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		err, n = nil, 0
	}
	return n == 1 && value[0] == 'y', errors.Join(err, dir.Close())
}

// writer writes files of a tree that does not change meanwhile.
type writer struct {
	from  *os.Root
	tar   *tar.Writer
	links map[inode]string  // the name that a file with several was written under, by inode
	adapt func(*tar.Header) // changes the header of what is copied; nil: nothing
}

type inode struct{ dev, ino uint64 }

// entry writes the file called name of the tree, under the name as.
func (w *writer) entry(name, as string, info fs.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	h := &tar.Header{
		Name: as, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	switch info.Mode().Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		id := inode{st.Dev, st.Ino}
		if first, again := w.links[id]; again {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		} else if st.Nlink > 1 {
			w.links[id] = as
		}
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
	case fs.ModeSymlink:
		target, err := w.from.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	default: // pipes, sockets and devices, which no image may hold
		return nil
	}
	if w.adapt != nil {
		w.adapt(h)
	}
	if err := w.tar.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	return w.content(name, h.Size)
}

func (w *writer) content(name string, size int64) error {
	f, err := w.from.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = io.CopyN(w.tar, f, size)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	return nil
}
