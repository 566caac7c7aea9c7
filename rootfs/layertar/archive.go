package layertar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Limits bound what is copied.
type Limits struct {
	Bytes   int64 // of one archive, expanded
	Entries int64 // of one archive, and of the layer
}

// archive is a file of the source that Unpack replaces by its content.
type archive struct {
	root *os.Root
	name string
}

// archiveReader reads the entries of an archive.
type archiveReader struct {
	archive *archive
	file    *os.File
	stream  io.Closer
	tar     *tar.Reader
	at      int // number of the entry that Next returned, from 1
}

func (a *archive) open(limit int64) (*archiveReader, error) {
	f, err := a.root.OpenFile(a.name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	stream, err := expand(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &archiveReader{archive: a, file: f, stream: stream, tar: tar.NewReader(stream)}
	if limit > 0 {
		r.tar = tar.NewReader(&bounded{stream, limit})
	}
	return r, nil
}

func (r *archiveReader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	if h != nil && errors.Is(err, tar.ErrInsecurePath) {
		err = nil // see entryName
	}
	r.at++
	return h, err
}

func (r *archiveReader) close() error { return errors.Join(r.stream.Close(), r.file.Close()) }

// bounded refuses to read more than a number of bytes.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, sbxerr.New(sbxerr.ImageTooBig, "layertar.archive", "it expands to more bytes than an image may have")
	}
	return n, err
}

// archiveFile is the content of an entry of an archive.
type archiveFile struct {
	archive *archive
	number  int
}

func (f archiveFile) key() string { return fmt.Sprintf("%p:%d", f.archive, f.number) }

// copy reads on in the archive: the items of one come in its order.
func (f archiveFile) copy(w *writer, size int64) error {
	if w.archive == nil || w.archive.archive != f.archive || w.archive.at > f.number {
		if err := w.closeArchive(); err != nil {
			return err
		}
		var err error
		if w.archive, err = f.archive.open(0); err != nil {
			return err
		}
	}
	for w.archive.at < f.number {
		if _, err := w.archive.next(); err != nil {
			return err
		}
	}
	_, err := io.CopyN(w.tar, w.archive.tar, size)
	return err
}

func (w *writer) closeArchive() error {
	if w.archive == nil {
		return nil
	}
	err := w.archive.close()
	w.archive = nil
	return err
}

// unpack plans the content of a file in the destination. A file that is no archive is left
// to copy.
func (p *planner) unpack(name string) (isArchive bool, err error) {
	a := &archive{p.From, name}
	r, err := a.open(p.Limits.Bytes)
	if err != nil {
		if errors.Is(err, errPacking) {
			err = nil
		}
		return false, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	h, err := r.next()
	if err != nil {
		return false, nil // by its content it is something else
	}
	dir, err := p.target.makePath(p.Dest, 0o755, p.dirOwner())
	if err != nil {
		return true, err
	}
	u := unpacker{planner: p, archive: a, dir: dir, own: map[string]bool{}}
	for ; err == nil; h, err = r.next() {
		if int64(r.at) > p.Limits.Entries {
			return true, sbxerr.New(sbxerr.ImageTooBig, "layertar.archive", "it has more than %d entries", p.Limits.Entries)
		}
		if err := p.checkSize(); err != nil {
			return true, err
		}
		if err := u.entry(h, r.at); err != nil {
			return true, fmt.Errorf("entry %q: %w", sbxerr.Clip(h.Name), err)
		}
	}
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return true, sbxerr.Wrap(sbxerr.ImageFormat, "layertar.archive", err)
}

// unpacker plans the entries of one archive.
type unpacker struct {
	*planner
	archive *archive
	dir     string          // where its content goes
	own     map[string]bool // names that it put
}

var typeModes = map[byte]fs.FileMode{
	tar.TypeReg: 0, tar.TypeGNUSparse: 0, tar.TypeLink: 0, tar.TypeDir: fs.ModeDir, tar.TypeSymlink: fs.ModeSymlink,
	tar.TypeChar: fs.ModeDevice, tar.TypeBlock: fs.ModeDevice, tar.TypeFifo: fs.ModeNamedPipe,
}

func (u *unpacker) entry(h *tar.Header, number int) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	mode, known := typeModes[h.Typeflag]
	if !known {
		return refuseContent("its type %q is unknown", h.Typeflag)
	}
	name, err := u.place(h.Name)
	if err != nil || name == u.dir {
		return err
	}
	i := &item{mode: mode, header: tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime,
	}}
	if u.Owner != nil {
		i.header.Uid, i.header.Gid = u.Owner.UID, u.Owner.GID
	}
	n, err := u.target.lookup(name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(i, n)
	case tar.TypeLink:
		i.header.Linkname = ""
		err = u.link(i, h.Linkname)
	case tar.TypeReg, tar.TypeGNUSparse:
		i.header.Typeflag, i.from = tar.TypeReg, archiveFile{u.archive, number}
	case tar.TypeSymlink:
		i.header.Mode = 0o777
	default: // the filter leaves it out and counts it
		i.header.Size = 0
	}
	if err == nil {
		err = mayBeFile(name, n)
	}
	if err == nil {
		u.put(i)
	}
	return err
}

func (u *unpacker) put(i *item) {
	u.own[strings.TrimSuffix(i.header.Name, "/")] = true
	u.target.put(i)
}

// directory plans a directory. A link of the image that leads to one stays.
func (u *unpacker) directory(i *item, n node) error {
	name := i.header.Name
	if n.isLink() && !u.own[name] {
		if _, to, err := follow(u.target.lookup, name); err != nil || to.isDir() {
			return err
		}
	}
	if !u.own[name] {
		if err := mayBeDir(name, n); err != nil {
			return err
		}
	}
	i.header.Name += "/"
	u.put(i)
	return nil
}

// place returns the name that an entry gets. A link of the image in it is followed; one of
// the archive is not.
func (u *unpacker) place(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == "." || name == "" {
		return u.dir, nil
	}
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", refuseContent("it leads out of the archive")
	}
	at := func(name string) (node, error) {
		n, err := u.target.lookup(name)
		if err == nil && n.isLink() && u.own[name] {
			err = refuseContent("it leads through the link %q of the archive", "/"+name)
		}
		return n, err
	}
	parent, _, err := follow(at, path.Join(u.dir, path.Dir(clean)))
	if err != nil {
		return "", err
	}
	return path.Join(parent, path.Base(clean)), u.target.makeDirs(parent, 0o755, Owner{})
}

// link plans a hard link: to a file of the archive, or to one of the image, which is a file
// of this layer then.
func (u *unpacker) link(i *item, to string) error {
	name, err := u.place(to)
	if err != nil {
		return fmt.Errorf("its target: %w", err)
	}
	if made := u.target.made[name]; made != nil {
		if !made.mode.IsRegular() {
			return refuseContent("its target is no file")
		}
		i.linkTo = made
		if made.linkTo != nil {
			i.linkTo = made.linkTo
		}
		return nil
	}
	info, err := u.Into.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return refuseContent("its target %q is no file of the archive or of the image", "/"+name)
	}
	if err != nil {
		return err
	}
	lower, err := itemOf(u.Into, name, info)
	if err != nil {
		return err
	}
	file := lower.from.(treeFile)
	file.id.several = true
	lower.from = file
	u.target.put(lower)
	i.linkTo = lower
	return nil
}

func refuseContent(format string, args ...any) error {
	return sbxerr.New(sbxerr.ImageContent, "layertar.archive", format, args...)
}
