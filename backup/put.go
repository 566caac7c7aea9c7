package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// entry restores one entry, where nothing is yet.
func (r *reader) entry(h *tar.Header) error {
	name := strings.TrimSuffix(h.Name, "/")
	item := itemOf(name)
	p, ok := partOf(item)
	if !ok || !filepath.IsLocal(name) || path.Clean(name) != name || !r.seen[item] && !slices.Contains(r.of.Items, item) {
		return refuse("it has the entry %q, which no backup has", h.Name)
	}
	if !r.seen[item] {
		r.seen[item] = true
		if !r.skip[item] {
			r.result.add(p.name, 1, 0)
		}
	}
	if r.skip[item] {
		return nil
	}
	if name != item {
		if err := r.checkParent(path.Dir(name)); err != nil {
			return err
		}
	}
	return r.put(p.name, item, name, h)
}

// checkParent refuses a way through a link. All that is there was made by this restore.
func (r *reader) checkParent(dir string) error {
	if dir == r.parent {
		return nil
	}
	for at := dir; at != "."; at = path.Dir(at) {
		if info, err := r.stg.Lstat(at); err != nil || !info.IsDir() {
			return refuse("the directory %q of an entry is not in it", at)
		}
	}
	r.parent = dir
	return nil
}

func (r *reader) put(part, item, name string, h *tar.Header) (err error) {
	switch h.Typeflag {
	case tar.TypeDir:
		info, err := r.stg.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return made(name, r.stg.Mkdir(name, 0o700)) // the rest comes when its files are there
		}
		if err != nil || !info.IsDir() {
			return refuse("it has %q twice", name)
		}
	case tar.TypeReg:
		if err := r.file(part, name, h); err != nil {
			return err
		}
	case tar.TypeSymlink:
		err = r.stg.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return r.link(item, name, h)
	case tar.TypeFifo:
		err = r.inParent(name, func(dir int, base string) error { return unix.Mkfifoat(dir, base, 0o600) })
	case tar.TypeChar:
		if !r.layers(name) || h.Devmajor|h.Devminor != 0 {
			return refuse("the entry %q is a device, which no backup has", h.Name)
		}
		err = r.inParent(name, func(dir int, base string) error { return unix.Mknodat(dir, base, unix.S_IFCHR|0o600, 0) })
	default:
		return refuse("the entry %q is of the kind %q, which no backup has", h.Name, h.Typeflag)
	}
	if err != nil {
		return made(name, err)
	}
	return made(name, r.metadata(name, h))
}

func made(name string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return refuse("it has %q twice", name)
	}
	if sbxerr.Of(err) == sbxerr.Backup {
		return err
	}
	return sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
}

// layers reports whether an entry is of an item that has layers.
func (r *reader) layers(name string) bool {
	p, _ := partOf(itemOf(name))
	return p.layers
}

// link makes another name of a file of the same item.
func (r *reader) link(item, name string, h *tar.Header) error {
	to := h.Linkname
	if !filepath.IsLocal(to) || path.Clean(to) != to || itemOf(to) != item {
		return refuse("the link %q leads to %q, out of its item", name, to)
	}
	r.parent = ""
	if err := r.checkParent(path.Dir(to)); err != nil {
		return err
	}
	if info, err := r.stg.Lstat(to); err != nil || info.IsDir() {
		return refuse("the link %q leads to %q, which is no file of it", name, to)
	}
	return made(name, r.stg.Link(to, name))
}

func (r *reader) inParent(name string, do func(dir int, base string) error) error {
	d, err := r.stg.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(do(int(d.Fd()), path.Base(name)), d.Close())
}

// metadata gives a file the owner first: that takes setuid bits and capabilities away.
func (r *reader) metadata(name string, h *tar.Header) error {
	if err := r.stg.Lchown(name, h.Uid, h.Gid); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		err := r.inParent(name, func(dir int, base string) error {
			return unix.Fchmodat(dir, base, uint32(h.Mode&0o7777), 0)
		})
		if err != nil {
			return err
		}
	}
	if err := r.attributes(name, h); err != nil {
		return err
	}
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	return r.inParent(name, func(dir int, base string) error {
		return unix.UtimesNanoAt(dir, base, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

func (r *reader) attributes(name string, h *tar.Header) (err error) {
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, xattrPrefix)
		if !ok {
			continue
		}
		data, e := hex.DecodeString(value)
		if e != nil || !restorable(attr, r.layers(name)) || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			return refuse("%q has the attribute %q, which no backup has", name, attr)
		}
		f, e := r.stg.Open(name)
		if e != nil {
			return e
		}
		err = errors.Join(err, unix.Fsetxattr(int(f.Fd()), attr, data, 0), f.Close())
	}
	return err
}

// file writes a file, with its holes.
func (r *reader) file(part, name string, h *tar.Header) error {
	f, err := r.stg.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return made(name, err)
	}
	n, err := copyFile(f, r.tar, h)
	r.result.add(part, 0, n)
	if e := f.Close(); err == nil {
		err = made(name, e)
	}
	return err
}

func copyFile(f *os.File, from io.Reader, h *tar.Header) (int64, error) {
	sparse, ok := h.PAXRecords[sparseSize]
	if !ok {
		return copied(io.Copy(f, from))
	}
	size, err := strconv.ParseInt(sparse, 10, 64)
	if err != nil || size < 0 {
		return 0, refuse("the size %q of %q is none", sparse, h.Name)
	}
	in := bufio.NewReader(from)
	table, err := readTable(in, size)
	if err != nil {
		return 0, err
	}
	if err := f.Truncate(size); err != nil {
		return 0, sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	var sum int64
	for _, e := range table {
		n, err := copied(io.CopyN(io.NewOffsetWriter(f, e.at), in, e.n))
		if sum += n; err != nil {
			return sum, err
		}
	}
	if n, err := io.Copy(io.Discard, in); n != 0 || err != nil {
		return sum, refuse("the extents of %q are not those of its table", h.Name)
	}
	return sum, nil
}

// copied parts what is wrong with the backup from what is wrong with the disk here.
func copied(n int64, err error) (int64, error) {
	var here *fs.PathError
	if errors.As(err, &here) {
		return n, sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	if err != nil {
		err = broken(err)
	}
	return n, err
}

func readTable(in *bufio.Reader, size int64) (list []extent, err error) {
	for end := int64(0); ; {
		line, err := in.ReadSlice('\n')
		if err != nil || len(line) > maxExtentLine {
			return nil, refuse("the table of a file with holes cannot be read")
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			return list, nil
		}
		var e extent
		if _, err := fmt.Sscanf(string(line), "%d %d", &e.at, &e.n); err != nil || e.at < end || e.n <= 0 || e.n > size-e.at {
			return nil, refuse("the table of a file with holes has the line %q", line)
		}
		end = e.at + e.n
		list = append(list, e)
	}
}
