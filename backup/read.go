package backup

import (
	"archive/tar"
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
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const (
	opRestore = "backup.restore"

	// staged is the directory into which a restore reads everything first. If it was killed, the
	// next restore removes that directory.
	staged = "restore.new"

	// tail is the length of the last entry, whose sum is of all before it, and of the end of a tar.
	tail = 4 * 512

	maxExtentLine = 64
)

// Restore reads a backup into a root, which is made where it is absent. With an error nothing is
// changed, except by one in the last step: then some items exist, each of them whole. Another
// restore with SkipExisting moves the others.
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
