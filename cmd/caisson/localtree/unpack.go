package localtree

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// stagingPrefix begins the name of the directory in which a tree is unpacked
// before it gets its place. One that is left was cut off by a SIGKILL.
const stagingPrefix = ".caisson-cp-"

// top is the name of what is copied, in the staging directory.
const top = "top"

// Counts says what was unpacked.
type Counts struct {
	Entries int64
	Bytes   int64
}

// Unpack puts the one file or tree of the tar r to local, as docker cp does: into
// a directory that is there, under the name that it has in the tar, or under
// none where that is "."; else as local, whose parent must exist.
//
// All of r is read before anything gets its place, so that an error leaves local
// as it was. Directories are merged, files replaced, and no symlink below local
// is followed. The files belong to the caller.
func Unpack(r io.Reader, local string) (counts Counts, err error) {
	info, err := os.Stat(local)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return counts, err
	}
	into := err == nil && info.IsDir()
	dir, name := filepath.Dir(filepath.Clean(local)), filepath.Base(local)
	if into {
		dir, name = local, ""
	}
	parent, err := os.OpenRoot(dir)
	if err != nil {
		return counts, err
	}
	defer parent.Close()
	staging := stagingPrefix + rand.Text()
	if err := parent.Mkdir(staging, 0o700); err != nil {
		return counts, err
	}
	defer func() { err = errors.Join(err, parent.RemoveAll(staging)) }()
	u := unpacker{}
	if err := u.all(parent, staging, r); err != nil {
		return counts, err
	}
	if !into && !u.dir && strings.HasSuffix(local, "/") {
		return counts, fmt.Errorf("%q is no directory", local)
	}
	if into {
		name = u.base
	}
	return u.counts, u.settle(parent, path.Join(staging, top), name)
}

// unpacker makes the entries of one tar.
type unpacker struct {
	root   *os.Root
	base   string // first element of all names, "." or the name of the copied entry
	dir    bool   // the copied entry is a directory
	counts Counts
	modes  []tar.Header // of directories, set when all is in them
}

func (u *unpacker) all(parent *os.Root, staging string, r io.Reader) (err error) {
	if u.root, err = parent.OpenRoot(staging); err != nil {
		return err
	}
	defer u.root.Close()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := u.entry(h, archive); err != nil {
			return err
		}
	}
	if u.base == "" {
		return errors.New("the archive is empty")
	}
	_, err = io.Copy(io.Discard, r) // whoever makes it may still find that it is not whole
	return err
}

// place returns where an entry is made.
func (u *unpacker) place(h *tar.Header) (string, error) {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(h.Name) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("the archive holds the name %q", h.Name)
	}
	if u.base == "" {
		if strings.Contains(name, "/") || h.Typeflag == tar.TypeSymlink {
			return "", fmt.Errorf("the archive begins with %q", h.Name)
		}
		u.base, u.dir = name, h.Typeflag == tar.TypeDir
		return top, nil
	}
	if u.base == "." {
		return path.Join(top, name), nil
	}
	below, ok := strings.CutPrefix(name, u.base+"/")
	if !ok {
		return "", fmt.Errorf("the archive holds %q beside %q", h.Name, u.base)
	}
	return path.Join(top, below), nil
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	at, err := u.place(h)
	if err != nil {
		return err
	}
	u.counts.Entries++
	switch h.Typeflag {
	case tar.TypeDir:
		h.Name = at
		u.modes = append(u.modes, *h)
		return u.root.Mkdir(at, 0o700)
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, at)
	case tar.TypeReg:
		return u.file(at, h, content)
	}
	return fmt.Errorf("the archive holds %q, which is neither file, directory nor symlink", h.Name)
}

func (u *unpacker) file(at string, h *tar.Header, content io.Reader) (err error) {
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := copySparse(f, content)
	u.counts.Bytes += n
	if err != nil {
		return err
	}
	if err := f.Chmod(fs.FileMode(h.Mode) & permissions); err != nil {
		return err
	}
	return u.root.Chtimes(at, h.ModTime, h.ModTime)
}

// settle gives what was unpacked at from its place. It looks for conflicts
// first, so that one changes nothing.
func (u *unpacker) settle(parent *os.Root, from, to string) error {
	for _, act := range []bool{false, true} {
		if err := (merger{parent, act}).move(from, to); err != nil {
			return err
		}
	}
	for _, h := range slices.Backward(u.modes) { // the deepest first: a closed one cannot be passed
		at := path.Join(to, strings.TrimPrefix(strings.TrimPrefix(h.Name, top), "/"))
		if at == "." {
			continue // the caller's own directory
		}
		if err := parent.Chmod(at, fs.FileMode(h.Mode)&permissions); err != nil {
			return err
		}
	}
	return nil
}

// merger moves entries within one root. Without act, it only looks.
type merger struct {
	root *os.Root
	act  bool
}

func (m merger) move(from, to string) error {
	comes, err := m.root.Lstat(from)
	if err != nil {
		return err
	}
	have, err := m.root.Lstat(to)
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !absent:
		return err
	case absent || !comes.IsDir() && !have.IsDir():
		if !m.act {
			return nil
		}
		return m.root.Rename(from, to)
	case !comes.IsDir():
		return &fs.PathError{Op: "replace", Path: m.path(to), Err: syscall.EISDIR}
	case !have.IsDir():
		return &fs.PathError{Op: "replace", Path: m.path(to), Err: syscall.ENOTDIR}
	}
	return m.merge(from, to)
}

func (m merger) merge(from, to string) error {
	list, err := fs.ReadDir(m.root.FS(), from)
	if err != nil {
		return err
	}
	for _, entry := range list {
		if err := m.move(path.Join(from, entry.Name()), path.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (m merger) path(at string) string { return filepath.Join(m.root.Name(), at) }
