package images

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
)

// pack writes all of root to w as a tar: owners, modes, times, symbolic links
// and hard links as they are; sockets, pipes and devices left out with a
// warning. Nothing outside root is read, whatever its links say.
func pack(root *os.Root, w io.Writer, warn func(string)) error {
	p := packer{root: root, warn: warn, adapt: func(*tar.Header) {}}
	return p.pack(w)
}

type packer struct {
	root *os.Root
	tar  *tar.Writer
	warn func(string)
	seen map[inode]string // where a file with several names came first

	leaves func(path string, entry fs.DirEntry) (bool, error) // what is left out; nil: nothing
	adapt  func(*tar.Header)                                  // changes what is written
}

type inode struct{ dev, ino uint64 }

func (p *packer) pack(w io.Writer) error {
	p.tar, p.seen = tar.NewWriter(w), map[inode]string{}
	top, err := p.root.Lstat(".")
	if err == nil {
		err = p.walk(".", fs.FileInfoToDirEntry(top))
	}
	if err != nil && !errors.Is(err, fs.SkipDir) {
		return err
	}
	return p.tar.Close()
}

// walk adds an entry and all that it holds. fs.WalkDir would refuse names that are not UTF-8.
func (p *packer) walk(name string, entry fs.DirEntry) error {
	err := p.add(name, entry)
	if err != nil || !entry.IsDir() {
		return err
	}
	dir, err := p.root.Open(name)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := p.walk(path.Join(name, e.Name()), e); err != nil && !errors.Is(err, fs.SkipDir) {
			return err
		}
	}
	return nil
}

func (p *packer) add(path string, entry fs.DirEntry) error {
	if p.leaves != nil {
		if left, err := p.leaves(path, entry); left || err != nil {
			return err
		}
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header, err := p.header(path, info)
	if err != nil || header == nil {
		return err
	}
	p.adapt(header)
	if err := p.tar.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	return p.content(path, info)
}

// header describes an entry; nil leaves it out.
func (p *packer) header(path string, info fs.FileInfo) (*tar.Header, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%q has no owner", path)
	}
	h := &tar.Header{
		Name: path, Mode: int64(stat.Mode & 0o7777), ModTime: info.ModTime(),
		Uid: int(stat.Uid), Gid: int(stat.Gid), Format: tar.FormatPAX,
	}
	switch info.Mode().Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		id := inode{uint64(stat.Dev), stat.Ino}
		if first, again := p.seen[id]; again {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		} else if stat.Nlink > 1 {
			p.seen[id] = path
		}
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, path+"/"
	case fs.ModeSymlink:
		target, err := p.root.Readlink(path)
		if err != nil {
			return nil, err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	default:
		p.warn(fmt.Sprintf("left out %s: neither a file, a directory nor a symbolic link", path))
		return nil, nil
	}
	return h, nil
}

// content copies the file that info described, and nothing that has taken its
// place or its size since.
func (p *packer) content(path string, info fs.FileInfo) error {
	f, err := p.root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, now) {
		return fmt.Errorf("%q was replaced while it was read", path)
	}
	_, err = io.CopyN(p.tar, f, info.Size())
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%q became shorter while it was read", path)
	}
	return err
}
