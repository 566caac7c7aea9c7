package layertar

import (
	"archive/tar"
	"errors"
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
	c := writer{tar: tar.NewWriter(w), names: map[string]string{}, adapt: func(h *tar.Header) {
		h.Uid, h.Gid = h.Uid-int(base), h.Gid-int(base)
	}}
	err := walk(upper, ".", func(name string, entry fs.DirEntry) error {
		if slices.Contains(skip, name) {
			return nil
		}
		return c.change(upper, name, entry)
	})
	return errors.Join(err, c.tar.Close())
}

func (w *writer) change(upper *os.Root, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if st := info.Sys().(*syscall.Stat_t); info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0 {
		return w.whiteout(path.Join(path.Dir(name), whiteoutPrefix+path.Base(name)))
	}
	i, err := itemOf(upper, name, info)
	if err != nil || i == nil {
		return err
	}
	if err := w.item(i); err != nil || !info.IsDir() {
		return err
	}
	opaque, err := isOpaque(upper, name)
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
