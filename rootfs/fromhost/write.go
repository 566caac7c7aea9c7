package fromhost

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Sink takes the entries of an image: package image's Writer is one.
type Sink interface {
	// Entry adds one entry. content is nil unless hdr is that of a file.
	Entry(hdr *tar.Header, content io.Reader) error
}

// Copied says what Write gave to its sink.
type Copied struct {
	Entries int64
	Bytes   int64
}

// Write copies what p names into sink, in the order of the plan. Each file is
// opened once and checked again as it is opened; the limits hold for what is
// copied, whatever the plan expected. A file that vanished, is no longer for
// everybody to read, or changes while it is copied ends the copy.
func Write(ctx context.Context, p *Plan, sink Sink) (_ Copied, err error) {
	const op = "fromhost.write"
	t, err := openTree(p.Root)
	if err != nil {
		return Copied{}, sbxerr.Wrap(sbxerr.FromHost, op, err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	w := writer{tree: t, sink: sink, limits: p.limits}
	for i := range p.Entries {
		if cause := context.Cause(ctx); cause != nil {
			return w.done, sbxerr.Wrap(sbxerr.Canceled, op, cause)
		}
		e := &p.Entries[i]
		if err := w.entry(e); err != nil {
			err = fmt.Errorf("copy %q: %w", e.Path, err)
			if sbxerr.Of(err) != sbxerr.Unknown {
				return w.done, err
			}
			return w.done, sbxerr.Wrap(sbxerr.FromHost, op, err)
		}
	}
	return w.done, nil
}

type writer struct {
	tree   *tree
	sink   Sink
	limits Limits
	done   Copied
}

func (w *writer) entry(e *Entry) error {
	if w.done.Entries >= w.limits.Entries {
		return sbxerr.New(sbxerr.ImageTooBig, "fromhost.write", "more than %d entries", w.limits.Entries)
	}
	w.done.Entries++
	hdr, err := header(e)
	if err != nil {
		return err
	}
	switch {
	case e.Kind != File:
		return w.sink.Entry(hdr, nil)
	case e.Source == "":
		return w.file(hdr, strings.NewReader(string(e.Content)), int64(len(e.Content)))
	}
	return w.copy(hdr, e.Source)
}

// header renders e. Names in an archive are relative; the owner is root.
func header(e *Entry) (*tar.Header, error) {
	hdr := &tar.Header{Name: strings.TrimPrefix(e.Path, "/"), Mode: int64(e.Mode), ModTime: time.Unix(e.ModTime, 0).UTC()}
	switch e.Kind {
	case Dir:
		hdr.Typeflag, hdr.Name = tar.TypeDir, hdr.Name+"/"
	case File:
		hdr.Typeflag = tar.TypeReg
	case Symlink:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, e.Link
	case Hardlink:
		hdr.Typeflag, hdr.Linkname = tar.TypeLink, strings.TrimPrefix(e.Link, "/")
	default:
		return nil, fmt.Errorf("unknown kind %q", e.Kind)
	}
	return hdr, nil
}

func (w *writer) copy(hdr *tar.Header, source string) (err error) {
	f, before, err := w.tree.open(source)
	if err != nil {
		return fmt.Errorf("%q %w", source, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	hdr.ModTime = time.Unix(before.mtime.Sec, 0).UTC()
	if err := w.file(hdr, &exact{r: f, left: before.size}, before.size); err != nil {
		return err
	}
	return unchanged(f, before)
}

func (w *writer) file(hdr *tar.Header, content io.Reader, size int64) error {
	if size > w.limits.Bytes-w.done.Bytes {
		return sbxerr.New(sbxerr.ImageTooBig, "fromhost.write", "more than %d bytes", w.limits.Bytes)
	}
	w.done.Bytes += size
	hdr.Size = size
	return w.sink.Entry(hdr, content)
}

var errChanged = errors.New("it changed while it was copied: try again")

// unchanged reports whether the open file f is still what it was. Half of an
// old and half of a new file would be neither.
func unchanged(f *os.File, before info) error {
	after, err := statFile(f)
	if err != nil {
		return err
	}
	if after.size != before.size || after.mtime != before.mtime {
		return errChanged
	}
	return nil
}

// exact reads left bytes, no more; fewer are an error and not the end.
type exact struct {
	r    io.Reader
	left int64
}

func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > e.left {
		p = p[:e.left]
	}
	n, err := e.r.Read(p)
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		return n, errChanged
	}
	return n, err
}
