package fromhost

import (
	"archive/tar"
	"bytes"
	"crypto/md5" // it is what dpkg records; it finds changes, it protects nothing
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxConfig bounds one configuration file of a package.
const maxConfig = 4 << 20

// inode tells hard links from equal files.
type inode struct{ dev, ino uint64 }

// writer copies what was collected into a tar.
type writer struct {
	*collector
	tar     *tar.Writer
	first   map[inode]string // paths of files with several names
	changed map[string][]string
	buf     []byte
}

// write copies all entries, sorted by path. A file that is gone or that not
// everybody may read is left out. One that changes while it is copied ends the copy.
func (c *collector) write(out io.Writer) error {
	w := writer{
		collector: c, tar: tar.NewWriter(out), first: map[inode]string{}, changed: map[string][]string{},
		buf: make([]byte, 256<<10),
	}
	for _, p := range c.paths() {
		if err := w.entry(c.set[p]); err != nil {
			return fmt.Errorf("copy %q: %w", p, err)
		}
	}
	for name, files := range w.changed {
		what := name + " (" + files[0]
		if more := len(files) - 1; more > 0 {
			what += fmt.Sprintf(" and %d more", more)
		}
		if dir := commonDir(files); dir != "" {
			what += ": --path " + dir
		}
		c.left.add(notAsItCame, what+")")
	}
	return w.tar.Close()
}

// commonDir is the directory that holds all of files. It is empty where that holds those of many
// packages, as /usr/lib does.
func commonDir(files []string) string {
	dir := path.Dir(files[0])
	for _, f := range files {
		for !below(f, dir) {
			dir = path.Dir(dir)
		}
	}
	if strings.Count(dir, "/") < 3 || slices.ContainsFunc(libraryDirs, func(of string) bool { ok, _ := path.Match(of, dir); return ok }) {
		return ""
	}
	return dir
}

// entry writes e. Names in an archive are relative; the owner is root.
func (w *writer) entry(e *entry) error {
	hdr := &tar.Header{Typeflag: e.kind, Name: strings.TrimPrefix(e.path, "/"), Linkname: e.link, Mode: 0o755}
	switch {
	case e.kind == tar.TypeDir:
		hdr.Name += "/"
		return w.tar.WriteHeader(hdr)
	case e.kind == tar.TypeSymlink:
		return w.tar.WriteHeader(hdr)
	case e.source != "":
		return w.copy(hdr, e)
	}
	hdr.Mode = 0o644
	if e.info != nil {
		hdr.ModTime = e.info.ModTime().Truncate(time.Second)
	}
	return w.content(hdr, e.content)
}

func (w *writer) content(hdr *tar.Header, content []byte) error {
	hdr.Size = int64(len(content))
	if err := w.tar.WriteHeader(hdr); err != nil {
		return err
	}
	_, err := w.tar.Write(content)
	return err
}

// openFile opens p for reading if it is a regular file, and never blocks on a
// pipe or a lease.
func openFile(p string) (*os.File, error) {
	return os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

func (w *writer) copy(hdr *tar.Header, e *entry) (err error) {
	f, err := openFile(w.real(e.source))
	if err != nil {
		w.leave(e.path, err)
		return w.err
	}
	defer func() { _ = f.Close() }() // it was only read
	before, err := f.Stat()
	if err != nil {
		return err
	}
	if !before.Mode().IsRegular() {
		w.left.add(leftSpecial, e.path)
		return nil
	}
	hdr.Mode, hdr.ModTime = permissions(before.Mode()), before.ModTime().Truncate(time.Second)
	if e.file != nil && e.file.config {
		return w.config(hdr, e, f)
	}
	if st := before.Sys().(*syscall.Stat_t); st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, ok := w.first[id]; ok {
			hdr.Typeflag, hdr.Linkname = tar.TypeLink, first
			return w.tar.WriteHeader(hdr)
		}
		w.first[id] = hdr.Name
	}
	return w.file(hdr, e, f, before)
}

// permissions keeps what everybody may do. The owner changes, so what is meant
// for the owner's group means nothing any more.
func permissions(mode fs.FileMode) int64 {
	if mode&0o011 == 0o011 {
		return 0o755
	}
	return 0o644
}

// config writes a configuration file as its package brought it. One that was
// changed on this host belongs to the host: it may hold passwords, addresses
// or names.
func (w *writer) config(hdr *tar.Header, e *entry, f *os.File) error {
	content, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return err
	}
	sum := newHash(e.file.digest)
	if sum != nil {
		_, _ = sum.Write(content) // a hash takes all
	}
	if len(content) > maxConfig || sum == nil || !matches(sum, e.file.digest) {
		w.left.add(leftConfig, e.path)
		return nil
	}
	return w.content(hdr, content)
}

// file copies f. Half of an old and half of a new file would be neither.
func (w *writer) file(hdr *tar.Header, e *entry, f *os.File, before fs.FileInfo) error {
	hdr.Size = before.Size()
	if err := w.tar.WriteHeader(hdr); err != nil {
		return err
	}
	out := io.Writer(w.tar)
	var sum hash.Hash
	if e.file != nil {
		if sum = newHash(e.file.digest); sum != nil {
			out = io.MultiWriter(w.tar, sum)
		}
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{io.LimitReader(f, hdr.Size)}, w.buf)
	if err != nil {
		return err
	}
	after, err := f.Stat()
	if err != nil {
		return err
	}
	if n != hdr.Size || after.Size() != hdr.Size || !after.ModTime().Equal(before.ModTime()) {
		return errors.New("it changed while it was copied: try again")
	}
	if sum != nil && !matches(sum, e.file.digest) {
		w.changed[e.file.of] = append(w.changed[e.file.of], e.path)
	}
	return nil
}

// newHash makes the hash that digest is of; nil if that is unknown.
func newHash(digest string) hash.Hash {
	switch len(digest) {
	case hex.EncodedLen(md5.Size):
		return md5.New()
	case hex.EncodedLen(sha256.Size):
		return sha256.New()
	}
	return nil
}

func matches(sum hash.Hash, digest string) bool {
	want, err := hex.DecodeString(digest)
	return err == nil && bytes.Equal(sum.Sum(nil), want)
}
