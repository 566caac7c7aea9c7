// Package localtree turns files of the caller's host into a tar and back, for
// caisson cp. All is done with the caller's own rights.
package localtree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

const permissions = 0o777

// Pack writes the file or tree at local to w as a tar, under name: "." makes it
// what is in the tree. A symlink at local is followed, those below are kept as
// they are; a further name of a file is a copy. Owners are not kept. What is
// neither file, directory nor symlink is told to skip and left out.
func Pack(local, name string, w io.Writer, skip func(path string)) error {
	p := packer{out: tar.NewWriter(w), local: local, name: name, skip: skip}
	info, err := os.Stat(local)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = p.tree()
	} else {
		err = p.single(info)
	}
	return errors.Join(err, closeAfter(err, p.out))
}

// closeAfter gives a tar its end only when it is whole.
func closeAfter(err error, out *tar.Writer) error {
	if err != nil {
		return nil
	}
	return out.Close()
}

type packer struct {
	out         *tar.Writer
	local, name string
	skip        func(string)
}

// single packs one file. Opening it again by name is what the caller asks for.
func (p *packer) single(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q is neither a file nor a directory", p.local)
	}
	f, err := os.Open(p.local)
	if err != nil {
		return err
	}
	defer f.Close()
	return p.file(f, p.name)
}

// tree packs a directory. Nothing outside it is read, whatever its links say.
func (p *packer) tree() error {
	root, err := os.OpenRoot(p.local)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return p.entry(root, at, info)
	})
}

func (p *packer) entry(root *os.Root, at string, info fs.FileInfo) error {
	name := path.Join(p.name, at)
	switch info.Mode().Type() {
	case 0:
		f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return p.file(f, name)
	case fs.ModeDir:
		return p.out.WriteHeader(headerOf(tar.TypeDir, name+"/", info))
	case fs.ModeSymlink:
		target, err := root.Readlink(at)
		if err != nil {
			return err
		}
		h := headerOf(tar.TypeSymlink, name, info)
		h.Linkname = target
		return p.out.WriteHeader(h)
	}
	p.skip(filepath.Join(p.local, at))
	return nil
}

// file packs an open file, as long as it is now.
func (p *packer) file(f *os.File, name string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q was replaced while it was read", f.Name())
	}
	h := headerOf(tar.TypeReg, name, info)
	h.Size = info.Size()
	if err := p.out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(p.out, f, h.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%q became shorter while it was read", f.Name())
	}
	return err
}

func headerOf(typ byte, name string, info fs.FileInfo) *tar.Header {
	return &tar.Header{
		Typeflag: typ, Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
}
