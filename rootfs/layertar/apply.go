package layertar

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const opApply = "layertar.apply"

// Apply puts a layer, as the filter wrote it, into empty trees: the inverse of Parts. It reads r to
// its end. Nothing leaves the trees, whatever the layer holds.
func Apply(r io.Reader, base uint32, parts []Part) error {
	a := applier{base: int(base), parts: parts}
	layer := tar.NewReader(r)
	for {
		h, err := layer.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = a.entry(h, layer)
		}
		if err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	for _, d := range a.dirs { // what was put into them changed them
		if err := d.setTime(); err != nil {
			return err
		}
	}
	return nil
}

type applier struct {
	base  int
	parts []Part
	dirs  []applied
}

// applied is a file of a tree.
type applied struct {
	Part
	name string
	at   time.Time
}

func (a *applier) entry(h *tar.Header, content io.Reader) error {
	f, err := a.place(h.Name)
	if err == nil {
		f.at = h.ModTime
		err = a.put(f, h, content)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", sbxerr.Clip("/"+h.Name), err)
	}
	return nil
}

// place finds the tree of a name.
func (a *applier) place(name string) (applied, error) {
	name = strings.TrimSuffix(name, "/")
	if !filepath.IsLocal(name) {
		return applied{}, sbxerr.New(sbxerr.ImageContent, opApply, "it lies in no tree")
	}
	for _, p := range a.parts {
		below, inside := strings.CutPrefix(name, p.At+"/")
		switch {
		case p.At == "":
		case name == p.At:
			return applied{Part: p, name: "."}, nil
		case inside:
			return applied{Part: p, name: below}, nil
		}
	}
	for _, p := range a.parts {
		if p.At == "" {
			return applied{Part: p, name: name}, nil
		}
	}
	return applied{}, sbxerr.New(sbxerr.ImageContent, opApply, "it lies in no directory that the snapshot has")
}

func (a *applier) put(f applied, h *tar.Header, content io.Reader) error {
	hidden, marked := strings.CutPrefix(path.Base(f.name), whiteoutPrefix)
	switch {
	case marked && f.At != "":
		return sbxerr.New(sbxerr.ImageContent, opApply, "nothing lies below it that it could remove")
	case path.Base(f.name) == opaqueName:
		return f.inParent(func(dir int, _ string) error { return unix.Fsetxattr(dir, "trusted.overlay.opaque", []byte("y"), 0) })
	case marked:
		return f.inParent(func(dir int, _ string) error { return unix.Mknodat(dir, hidden, unix.S_IFCHR, 0) })
	case h.Typeflag == tar.TypeLink:
		to, err := a.place(h.Linkname)
		if err == nil && to.Part != f.Part {
			err = sbxerr.New(sbxerr.ImageContent, opApply, "it is a link to another file system")
		}
		if err != nil {
			return err
		}
		return f.Root.Link(to.name, f.name)
	}
	if err := f.make(h, content); err != nil {
		return err
	}
	if err := f.Root.Lchown(f.name, a.base+h.Uid, a.base+h.Gid); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		kept := fs.ModePerm | fs.ModeSticky
		if f.All {
			kept |= fs.ModeSetuid | fs.ModeSetgid
		}
		if err := f.Root.Chmod(f.name, h.FileInfo().Mode()&kept); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeDir {
		a.dirs = append(a.dirs, f)
		return nil
	}
	return f.setTime()
}

func (f applied) make(h *tar.Header, content io.Reader) error {
	if f.All && h.Typeflag == tar.TypeFifo {
		return f.inParent(func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) })
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err := f.Root.Mkdir(f.name, 0o700)
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	case tar.TypeSymlink:
		return f.Root.Symlink(h.Linkname, f.name)
	case tar.TypeReg:
		file, err := f.Root.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(copyHoles(file, content, h.Size), file.Close())
	}
	return sbxerr.New(sbxerr.ImageContent, opApply, "the filter lets no file of type %q pass", h.Typeflag)
}

// copyHoles copies a file, and leaves out what is zero.
func copyHoles(to *os.File, from io.Reader, size int64) error {
	block, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(from, block[:min(size-at, int64(len(block)))])
		if err != nil {
			return err
		}
		if !bytes.Equal(block[:n], zero[:n]) {
			if _, err := to.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return to.Truncate(size)
}

func (f applied) setTime() error {
	return f.inParent(func(dir int, name string) error {
		t := unix.NsecToTimespec(f.at.UnixNano())
		return unix.UtimesNanoAt(dir, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// inParent calls do with the directory of a file.
func (f applied) inParent(do func(dir int, name string) error) error {
	dir, err := f.Root.Open(path.Dir(f.name))
	if err != nil {
		return err
	}
	return errors.Join(do(int(dir.Fd()), path.Base(f.name)), dir.Close())
}
