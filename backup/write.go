package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const opCreate = "backup.create"

// Create writes a backup of a root.
func Create(ctx context.Context, root string, to io.Writer, now time.Time, o Options) (*Result, error) {
	held, err := lock(root, opCreate)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	list, err := items(root, o)
	if err != nil {
		return nil, err
	}
	at, err := filepath.Abs(root)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opCreate, err)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opCreate, err)
	}
	defer dir.Close()
	sum := sha256.New()
	w := &writer{ctx: ctx, root: dir, sum: sum, links: map[inode]string{}, result: Result{CreatedAt: now.UTC().Truncate(time.Second), Counts: counts()}}
	w.tar = tar.NewWriter(io.MultiWriter(outside{to}, sum))
	if err := w.all(at, list); err != nil {
		return nil, coded(opCreate, err)
	}
	return &w.result, nil
}

// coded is err with a code: that of the root's files, where it has none.
func coded(op string, err error) error {
	var has *sbxerr.Error
	if errors.As(err, &has) {
		return err
	}
	return sbxerr.Wrap(sbxerr.StateDir, op, err)
}

// outside tells errors of the output from those of the root.
type outside struct{ io.Writer }

func (o outside) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	return n, sbxerr.Wrap(sbxerr.ClientIO, opCreate, err)
}

type inode struct{ dev, ino uint64 }

type writer struct {
	ctx    context.Context
	root   *os.Root
	tree   *os.Root // of the item: a link that a sandbox swaps in leads nowhere else
	of     string   // the item
	tar    *tar.Writer
	sum    hash.Hash
	links  map[inode]string // names of an item's files that have more names
	skip   []string         // names that stay behind
	layers bool             // whether the item has layers
	result Result
}

func (w *writer) all(root string, list []string) error {
	manifest, err := encode(Manifest{version, w.result.CreatedAt, root, list})
	if err == nil {
		err = w.text(manifestName, manifest)
	}
	for _, item := range list {
		if err == nil {
			err = w.item(item)
		}
	}
	if err == nil {
		err = w.tar.Flush()
	}
	if err == nil {
		err = w.text(sumName, []byte(hex.EncodeToString(w.sum.Sum(nil))))
	}
	if err == nil {
		err = w.tar.Close()
	}
	return err
}

func (w *writer) text(name string, data []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600, ModTime: w.result.CreatedAt, Format: tar.FormatUSTAR})
	if err == nil {
		_, err = w.tar.Write(data)
	}
	return err
}

func (w *writer) item(name string) error {
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	w.tree, w.of = w.root, ""
	if info.IsDir() {
		if w.tree, err = w.root.OpenRoot(name); err != nil {
			return err
		}
		defer w.tree.Close() // it was only read
		w.of = name
	}
	p, _ := partOf(name)
	w.skip, w.layers = nil, p.layers
	for _, s := range p.skip {
		w.skip = append(w.skip, name+"/"+s)
	}
	clear(w.links)
	w.result.add(p.name, 1, 0)
	return w.entry(p.name, name, info)
}

// in is the name of an entry in the tree of its item.
func (w *writer) in(name string) string {
	if w.of == "" {
		return name
	}
	return "." + strings.TrimPrefix(name, w.of)
}

// open opens the file that info is about. It waits for nobody.
func (w *writer) open(name string, info fs.FileInfo) (*os.File, error) {
	f, err := w.tree.OpenFile(w.in(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = sbxerr.New(sbxerr.StateDir, opCreate, "%q was replaced while it was read", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// entry writes a file, or a directory before and after what it has: its mode and time come last.
func (w *writer) entry(part, name string, info fs.FileInfo) error {
	if err := w.ctx.Err(); err != nil {
		return sbxerr.Wrap(sbxerr.Canceled, opCreate, err)
	}
	h, err := w.header(name, info)
	switch {
	case err != nil:
		return err
	case h == nil:
		w.result.Left = append(w.result.Left, name)
		return nil
	case h.Typeflag == tar.TypeReg:
		return w.file(part, info, h)
	case h.Typeflag != tar.TypeDir:
		return w.tar.WriteHeader(h)
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if err := w.below(part, name, info); err != nil {
		return err
	}
	return w.tar.WriteHeader(h)
}

// below writes what a directory has.
func (w *writer) below(part, name string, dir fs.FileInfo) error {
	d, err := w.open(name, dir)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		at := name + "/" + e.Name()
		info, err := w.tree.Lstat(w.in(at))
		if err != nil {
			return err
		}
		if statOf(info).Dev != statOf(dir).Dev {
			return sbxerr.WithRemedy(sbxerr.VolumeInUse, opCreate, fmt.Errorf("a file system is mounted at %q", at),
				"end the sandboxes that the daemon left: caissond --stop-all")
		}
		if slices.Contains(w.skip, at) {
			w.result.Left = append(w.result.Left, at)
			continue
		}
		if err := w.entry(part, at, info); err != nil {
			return err
		}
	}
	return nil
}

func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// header is nil for a socket or device: neither means anything on another host.
func (w *writer) header(name string, info fs.FileInfo) (*tar.Header, error) {
	s := statOf(info)
	h := &tar.Header{Name: name, Mode: int64(s.Mode & 0o7777), Uid: int(s.Uid), Gid: int(s.Gid), ModTime: info.ModTime(), Format: tar.FormatPAX, PAXRecords: map[string]string{}}
	id := inode{s.Dev, s.Ino}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case w.links[id] != "":
		h.Typeflag, h.Linkname = tar.TypeLink, w.links[id]
		return h, nil
	case mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, s.Size
	case mode&fs.ModeSymlink != 0:
		target, err := w.tree.Readlink(w.in(name))
		if err != nil {
			return nil, err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
	case w.layers && mode&fs.ModeCharDevice != 0 && s.Rdev == 0:
		h.Typeflag = tar.TypeChar
	default:
		return nil, nil
	}
	if s.Nlink > 1 && !info.IsDir() {
		w.links[id] = name
	}
	if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir {
		return h, w.attributes(name, info, h)
	}
	return h, nil
}

func (w *writer) attributes(name string, info fs.FileInfo, h *tar.Header) error {
	f, err := w.open(name, info)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(f.Fd()), names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	for attr := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !restorable(attr, w.layers) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(int(f.Fd()), attr, value)
		if err != nil {
			return err
		}
		h.PAXRecords[xattrPrefix+attr] = hex.EncodeToString(value[:n])
	}
	return nil
}

const xattrPrefix = prefix + "xattr."

// restorable are the attributes that a sandbox sees: not those of security modules, and those of
// overlays in layers alone.
func restorable(attr string, layers bool) bool {
	return layers && strings.HasPrefix(attr, "trusted.overlay.") || strings.HasPrefix(attr, "user.") || attr == "security.capability" || strings.HasPrefix(attr, "system.posix_acl_")
}

type extent struct{ at, n int64 }

func (w *writer) file(part string, info fs.FileInfo, h *tar.Header) error {
	f, err := w.open(h.Name, info)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	list, err := extents(f, h.Size)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if whole := []extent{{0, h.Size}}; h.Size > 0 && !slices.Equal(list, whole) {
		h.PAXRecords[sparseSize] = strconv.FormatInt(h.Size, 10)
		h.Size = 0
		for _, e := range list {
			fmt.Fprintf(&table, "%d %d\n", e.at, e.n)
			h.Size += e.n
		}
		table.WriteByte('\n')
		h.Size += int64(table.Len())
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if _, err := table.WriteTo(w.tar); err != nil {
		return err
	}
	for _, e := range list {
		n, err := io.Copy(w.tar, while{w.ctx, io.NewSectionReader(f, e.at, e.n)})
		if err == nil && n != e.n {
			err = sbxerr.New(sbxerr.StateDir, opCreate, "%q became shorter while it was read", h.Name)
		}
		if err != nil {
			return err
		}
		w.result.add(part, 0, n)
	}
	return nil
}

// while ends a long copy with its caller.
type while struct {
	ctx context.Context
	io.Reader
}

func (w while) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, sbxerr.Wrap(sbxerr.Canceled, opCreate, err)
	}
	return w.Reader.Read(p)
}

// extents are where a file has data.
func extents(f *os.File, size int64) (list []extent, err error) {
	for end := int64(0); end < size; {
		begin, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return list, nil
		}
		if err == nil {
			end, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, extent{begin, min(end, size) - begin})
	}
	return list, nil
}
