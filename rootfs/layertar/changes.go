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
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
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
	err := Walk(upper, ".", func(name string, entry fs.DirEntry) error {
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
	dir, err := upper.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close() // it was only read
	from, err := attribute(dir, "redirect")
	opaque, opaqueErr := attribute(dir, "opaque")
	switch err = errors.Join(err, opaqueErr); {
	case err != nil:
		return err
	case from != "":
		return renamed(name)
	case opaque == "y":
		return w.whiteout(path.Join(name, opaqueName))
	}
	return nil
}

// renamed refuses a directory that shows what the lower layer has under another name: a layer cannot
// say that.
func renamed(name string) error {
	return sbxerr.WithRemedy(sbxerr.SnapshotName, "layertar.parts", fmt.Errorf("%q is a directory of the image that was renamed", sbxerr.Clip("/"+name)),
		"create a sandbox from the snapshot, copy the directory and remove the one that was renamed, and export a snapshot of that")
}

func (w *writer) whiteout(name string) error {
	return w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX})
}

// attribute is what an overlay notes of a directory (overlayfs.rst); empty: nothing.
func attribute(dir *os.File, name string) (string, error) {
	value := make([]byte, unix.PathMax)
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay."+name, value)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	return string(value[:max(n, 0)]), err
}

// Part is a tree whose content is in a layer.
type Part struct {
	Root *os.Root
	At   string // its name in the layer; empty: it is the upper layer of an overlay
	All  bool   // with pipes and set-id bits, which no layer of an image has; not where At is empty
}

// Parts writes an upper layer, and the trees that are mounted over it, as one layer. Their ids begin
// at base.
func Parts(parts []Part, base uint32, w io.Writer) error {
	layer := tar.NewWriter(w)
	for _, p := range parts {
		if err := p.write(parts, base, layer); err != nil {
			return err
		}
	}
	return layer.Close()
}

func (p Part) write(parts []Part, base uint32, layer *tar.Writer) error {
	w := writer{tar: layer, names: map[string]string{}, adapt: func(h *tar.Header) {
		h.Uid, h.Gid, h.Name = h.Uid-int(base), h.Gid-int(base), p.named(h.Name)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = p.named(h.Linkname)
		}
	}}
	if p.At != "" {
		if err := w.file(p, "."); err != nil {
			return err
		}
	}
	return Walk(p.Root, ".", func(name string, entry fs.DirEntry) error {
		switch hidden := slices.ContainsFunc(parts, func(over Part) bool { return p.At == "" && over.At == name }); {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		case strings.HasPrefix(path.Base(name), whiteoutPrefix):
			return sbxerr.New(sbxerr.SnapshotName, "layertar.parts", "%q has a name that means the removal of a file in a layer", sbxerr.Clip("/"+p.named(name)))
		case p.At == "":
			return w.change(p.Root, name, entry)
		}
		return w.file(p, name)
	})
}

// named is the name in the layer of a name of the tree.
func (p Part) named(name string) string {
	joined := path.Join(p.At, name)
	if strings.HasSuffix(name, "/") {
		joined += "/"
	}
	return joined
}

// file writes a file of a tree in which nothing hides what lies below it.
func (w *writer) file(p Part, name string) error {
	info, err := p.Root.Lstat(name)
	if err != nil {
		return err
	}
	i, err := itemOf(p.Root, name, info)
	if i == nil && p.All && info.Mode()&fs.ModeNamedPipe != 0 {
		i = &item{header: headerOf(name, info, tar.TypeFifo), mode: fs.ModeNamedPipe}
	}
	if err != nil || i == nil {
		return err
	}
	return w.item(i)
}
