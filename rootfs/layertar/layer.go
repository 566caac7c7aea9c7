package layertar

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
)

// Layer is a layer that was planned.
type Layer struct{ items []*item }

// Empty reports whether the layer would change nothing.
func (l Layer) Empty() bool { return len(l.items) == 0 }

// DigestOf tells what a name of a tree holds, by all but the times of the files.
func DigestOf(ctx context.Context, root *os.Root, name string) (digest.Digest, error) {
	p := planner{Copy: Copy{From: root}, target: &target{image: emptyTree, made: map[string]*item{}}, ended: ctx.Err}
	if err := p.tree(name, "x", true); err != nil {
		return "", err
	}
	return Layer{items: p.target.items}.Digest(ctx)
}

func emptyTree(name string) (node, error) {
	if name == "." {
		return node{mode: fs.ModeDir}, nil
	}
	return node{absent: true}, nil
}

// Write writes the layer.
func (l Layer) Write(w io.Writer) error { return l.write(w, func(*tar.Header) {}) }

// Digest tells layers apart by all but the times of the files.
func (l Layer) Digest(ctx context.Context) (digest.Digest, error) {
	sum := sha256.New()
	err := l.write(while{ctx.Err, sum}, func(h *tar.Header) { h.ModTime = time.Unix(0, 0) })
	return digest.NewDigest(digest.SHA256, sum), err
}

// while writes as long as a call has not ended.
type while struct {
	ended func() error
	w     io.Writer
}

// Write implements io.Writer.
func (w while) Write(p []byte) (int, error) {
	if err := w.ended(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

func (l Layer) write(out io.Writer, adapt func(*tar.Header)) (err error) {
	w := writer{tar: tar.NewWriter(out), names: map[string]string{}, adapt: adapt}
	defer func() { err = errors.Join(err, w.closeArchive()) }()
	for _, i := range l.items {
		if i.dead {
			continue
		}
		if err := w.item(i); err != nil {
			return fmt.Errorf("%q: %w", "/"+strings.TrimSuffix(i.header.Name, "/"), err)
		}
	}
	return w.tar.Close()
}

// writer writes the items of a layer.
type writer struct {
	tar     *tar.Writer
	names   map[string]string // the name that a content with several was written under
	adapt   func(*tar.Header)
	archive *archiveReader // the one that is being read; nil: none
}

func (w *writer) item(i *item) error {
	h := i.header
	h.Format = tar.FormatPAX
	from := i.from
	if i.linkTo != nil {
		from = i.linkTo.from
		h.Typeflag, h.Size = tar.TypeReg, i.linkTo.header.Size
	}
	if from != nil {
		if key := from.key(); key != "" {
			if first, again := w.names[key]; again {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			} else {
				w.names[key] = h.Name
			}
		}
	}
	w.adapt(&h)
	if err := w.tar.WriteHeader(&h); err != nil || h.Typeflag != tar.TypeReg || h.Size == 0 {
		return err
	}
	return from.copy(w, h.Size)
}

// itemOf is the entry of a file of a tree. Pipes, sockets and devices have none: no image may
// hold them.
func itemOf(root *os.Root, name string, info fs.FileInfo) (*item, error) {
	st := info.Sys().(*syscall.Stat_t)
	i := &item{header: headerOf(name, info, 0), mode: info.Mode().Type()}
	switch i.mode {
	case 0:
		i.header.Typeflag, i.header.Size = tar.TypeReg, info.Size()
		i.from = treeFile{root: root, name: name, id: inode{uint64(st.Dev), st.Ino, st.Nlink > 1}}
	case fs.ModeDir:
		i.header.Typeflag, i.header.Name = tar.TypeDir, name+"/"
	case fs.ModeSymlink:
		var err error
		i.header.Typeflag = tar.TypeSymlink
		if i.header.Linkname, err = root.Readlink(name); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	return i, nil
}

func headerOf(name string, info fs.FileInfo, kind byte) tar.Header {
	st := info.Sys().(*syscall.Stat_t)
	return tar.Header{Typeflag: kind, Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime()}
}

// content is that of a file.
type content interface {
	key() string // equal for names of one file; empty: it has one name
	copy(w *writer, size int64) error
}

type inode struct {
	dev, ino uint64
	several  bool // it has several names
}

// treeFile is a file of a tree that does not change meanwhile.
type treeFile struct {
	root *os.Root
	name string
	id   inode
}

func (f treeFile) key() string {
	if !f.id.several {
		return ""
	}
	return fmt.Sprintf("%d:%d", f.id.dev, f.id.ino)
}

func (f treeFile) copy(w *writer, size int64) error {
	file, err := f.root.OpenFile(f.name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = io.CopyN(w.tar, file, size)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("copy %q: %w", f.name, err)
	}
	return nil
}

// textFile is a content that is given.
type textFile string

func (textFile) key() string { return "" }

func (f textFile) copy(w *writer, _ int64) error {
	_, err := io.WriteString(w.tar, string(f))
	return err
}
