package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
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
	"github.com/caisson-run/caisson/owndir"
)

const (
	opRestore = "backup.restore"

	// staged is where a restore puts everything first. The next one removes what is left of it.
	staged = "restore.new"

	// tail is the length of the last entry, whose sum is of all before it, and of the end of a tar.
	tail = 4 * 512

	maxExtentLine = 64
)

// Restore reads a backup into a root, which is made where it is absent. With an error nothing is
// changed, except by one in the last step: then some items are there, each of them whole. So a
// restore that skips what is there finishes it.
func Restore(ctx context.Context, root string, from io.Reader, o Options) (*Result, error) {
	if err := os.MkdirAll(root, 0o711); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	held, err := lock(root, opRestore)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	dir := filepath.Join(root, staged)
	if err := owndir.RemoveTree(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	in := &summed{from: while{ctx, from}, sum: sha256.New()}
	r := &reader{tar: tar.NewReader(in), in: in, dir: root, skip: map[string]bool{}, seen: map[string]bool{}, result: Result{Counts: counts()}}
	if err := r.manifest(o); err != nil {
		return nil, err
	}
	if err := owndir.Mkdir(dir, 0o700); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	if err := r.stage(dir); err != nil {
		return nil, errors.Join(err, sbxerr.Wrap(sbxerr.StateDir, opRestore, owndir.RemoveTree(dir)))
	}
	if err := r.publish(dir); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	return &r.result, sbxerr.Wrap(sbxerr.StateDir, opRestore, owndir.RemoveTree(dir))
}

func refuse(format string, args ...any) error {
	return sbxerr.New(sbxerr.Backup, opRestore, format, args...)
}

// summed sums up all but the last entry.
type summed struct {
	from io.Reader
	sum  hash.Hash
	held []byte // the last bytes, at most tail
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.held = append(s.held, p[:n]...)
	if over := len(s.held) - tail; over > 0 {
		s.sum.Write(s.held[:over])
		s.held = append(s.held[:0], s.held[over:]...)
	}
	return n, err
}

type reader struct {
	tar    *tar.Reader
	in     io.Reader
	dir    string
	of     Manifest
	skip   map[string]bool // items that are there already
	seen   map[string]bool // items that came
	stg    *os.Root
	parent string // the last directory that was checked
	result Result
}

// next is the next entry. Everything that is no tar, or ends too early, is refused.
func (r *reader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	if err != nil {
		return nil, broken(err)
	}
	return h, nil
}

func broken(err error) error {
	if sbxerr.Of(err) == sbxerr.Canceled {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse("the backup is cut short")
	}
	return refuse("the backup cannot be read: %w", err)
}

func (r *reader) text(h *tar.Header, most int64) ([]byte, error) {
	if h.Typeflag != tar.TypeReg || h.Size > most {
		return nil, refuse("%q is not that of a backup", h.Name)
	}
	data, err := io.ReadAll(r.tar)
	if err != nil {
		return nil, broken(err)
	}
	return data, nil
}

// manifest reads what is in the backup, and refuses what cannot be restored here.
func (r *reader) manifest(o Options) error {
	h, err := r.next()
	if err != nil {
		return err
	}
	if h.Name != manifestName {
		return refuse("it is no backup: its first entry is %q", h.Name)
	}
	data, err := r.text(h, maxManifest)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &r.of); err != nil {
		return refuse("the manifest cannot be read: %w", err)
	}
	if r.of.Version != version {
		return refuse("it has format version %d, and this caisson reads %d", r.of.Version, version)
	}
	r.result.CreatedAt = r.of.CreatedAt
	for _, item := range r.of.Items {
		if _, ok := partOf(item); !ok {
			return refuse("the manifest names %q, which no backup has", item)
		}
		if item == imagesPart {
			if err := r.images(o); err != nil {
				return err
			}
			if o.NoImages {
				r.skip[item] = true
				continue
			}
		}
		_, err := os.Lstat(r.place(item))
		if err == nil {
			r.skip[item] = true
			r.result.Left = append(r.result.Left, item)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
		}
	}
	if len(r.result.Left) > 0 && !o.SkipExisting {
		return sbxerr.New(sbxerr.RestoreExists, opRestore, "%d of %d items are there already: %s", len(r.result.Left), len(r.of.Items), some(r.result.Left))
	}
	return nil
}

// images refuses images of a root at another path: containerd's namespace is named after it.
func (r *reader) images(o Options) error {
	at, err := filepath.Abs(r.dir)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	if at == r.of.Root || o.NoImages {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Backup, opRestore, fmt.Errorf("its images are those of the root %q, and this one is %q", r.of.Root, at),
		"restore them into the same path, or leave them out: caisson restore --no-images")
}

// some are the first of many.
func some(list []string) string {
	const most = 20
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// place is where an item goes. The log of another host stays apart from that of this one.
func (r *reader) place(item string) string {
	if item == auditPart {
		item += ".restored-" + r.of.CreatedAt.UTC().Format("20060102T150405Z")
	}
	return filepath.Join(r.dir, item)
}

// stage reads everything, and compares its sum.
func (r *reader) stage(dir string) (err error) {
	if r.stg, err = os.OpenRoot(dir); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
	}
	defer r.stg.Close() // files in it were synced
	for _, p := range parts {
		if p.item != nil {
			if err := r.stg.Mkdir(p.name, 0o700); err != nil {
				return sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
			}
		}
	}
	for {
		h, err := r.next()
		if err != nil {
			return err
		}
		if h.Name == sumName {
			return r.end(h)
		}
		if err := r.entry(h); err != nil {
			return err
		}
	}
}

// end compares the sum and the manifest with what came, and makes it durable.
func (r *reader) end(h *tar.Header) error {
	said, err := r.text(h, 2*sha256.Size)
	if err != nil {
		return err
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		return refuse("something follows its last entry")
	}
	if _, err := io.Copy(io.Discard, r.in); err != nil {
		return broken(err)
	}
	in := r.in.(*summed)
	if got := hex.EncodeToString(in.sum.Sum(nil)); !bytes.Equal(in.held, lastEntry(got, r.of)) {
		return refuse("the backup was changed: its SHA-256 is %s, and it says %.64q", got, said)
	}
	for _, item := range r.of.Items {
		if !r.seen[item] {
			return refuse("%q of the manifest is not in it", item)
		}
	}
	d, err := r.stg.Open(".")
	if err == nil {
		err = errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
	}
	return sbxerr.Wrap(sbxerr.StateDir, opRestore, err)
}

// lastEntry is the end of a backup with this sum.
func lastEntry(sum string, of Manifest) []byte {
	var out bytes.Buffer
	w := &writer{tar: tar.NewWriter(&out), result: Result{CreatedAt: of.CreatedAt}}
	if err := errors.Join(w.text(sumName, []byte(sum)), w.tar.Close()); err != nil {
		return nil
	}
	return out.Bytes()
}

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

// publish moves each item to its place.
func (r *reader) publish(dir string) error {
	for _, p := range parts {
		if p.item == nil {
			continue
		}
		if err := owndir.Mkdir(filepath.Join(r.dir, p.name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, item := range r.of.Items {
		if r.skip[item] {
			continue
		}
		if err := owndir.Move(filepath.Join(dir, item), r.place(item)); err != nil {
			return err
		}
	}
	d, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
