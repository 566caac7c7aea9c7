package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// CopyIn unpacks the tar r into the existing directory at path, as the sandbox's
// user. All of it is unpacked into a new directory there first: an error before
// all was received, or an entry that would be of another kind than what has its
// name, leaves everything as it was. Files of the same name are replaced,
// directories merged; no symlink is followed. Modes are kept but for set-id and
// sticky bits, and so are the times of files; owners are not.
//
// Refused are names that are absolute or hold "..", and whatever is neither
// file, directory, symlink nor hard link. Errors of r are as with Write.
func (c *Client) CopyIn(ctx context.Context, path string, r io.Reader) (Copied, error) {
	if err := checkPath(path); err != nil {
		return Copied{}, err
	}
	var copied Copied
	what := subject{"copy into", path, true}
	err := c.call(ctx, wire.Request{Op: wire.OpCopyIn, Path: path}, func() error {
		in := &copyIn{entries: c.limits.ArchiveEntries}
		kind, body, err := c.upload(what, c.limits.Slow, func(u *upload) error { return in.feed(u, r) })
		if err != nil {
			return err
		}
		d, err := c.doneOf(kind, body)
		copied = Copied{Entries: d.Entries, Bytes: d.Bytes}
		if err == nil && (d.Entries != in.sent || d.Bytes != in.bytes) {
			return broken(fmt.Errorf("it says that it made %d entries of %d", d.Entries, in.sent))
		}
		return err
	})
	return copied, err
}

// copyIn is one CopyIn under way.
type copyIn struct {
	entries int64 // that may come
	sent    int64
	bytes   int64
}

func (in *copyIn) feed(u *upload, r io.Reader) error {
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return drain(r)
		}
		if err != nil {
			return archiveReadError(err)
		}
		if err := in.entry(u, h, archive); err != nil {
			return err
		}
	}
}

// drain reads what follows the end of an archive: padding. A source that breaks
// off there was not complete.
func drain(r io.Reader) error {
	const most = 1 << 20
	n, err := io.Copy(io.Discard, io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return sourceError(err)
	case n > most:
		return archiveError("more than %d bytes follow the end of the archive", most)
	}
	return nil
}

func (in *copyIn) entry(u *upload, h *tar.Header, content io.Reader) error {
	i, err := entryFrom(h)
	if err != nil || i == nil {
		return err
	}
	if in.sent++; in.sent > in.entries {
		return sbxerr.New(sbxerr.FileTooBig, "files.copy", "the archive has more than %d entries", in.entries)
	}
	if i.Size > u.left {
		return sbxerr.New(sbxerr.FileTooBig, "files.copy", "the archive holds more than %d bytes", u.conn.limits.Bytes)
	}
	if err := u.send(i.Frame()); err != nil || i.Type != wire.TypeFile {
		return err
	}
	n, err := u.data(io.LimitReader(archiveContent{content}, i.Size))
	in.bytes += n
	if err == nil && n != i.Size {
		return archiveError("%q has %d bytes of %d", sbxerr.Clip(h.Name), n, i.Size)
	}
	return err
}

// archiveContent tells a broken archive from a broken source.
type archiveContent struct{ io.Reader }

func (a archiveContent) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = archiveReadError(err)
	}
	return n, err
}

// archiveReadError is an error of the tar reader: of its source, where that has
// a code, else of the archive.
func archiveReadError(err error) error {
	if sbxerr.Of(err) != sbxerr.Unknown || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sourceError(err)
	}
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it is no tar, perhaps a compressed one, or it is cut short: %w", err)
	}
	return sbxerr.WithRemedy(sbxerr.Archive, "files.copy", fmt.Errorf("read the archive: %w", err), "give a whole tar that is not compressed, as tar c makes it")
}

// entryFrom is the clean form of an entry; nil is one that is nothing to make.
func entryFrom(h *tar.Header) (*wire.Info, error) {
	i := &wire.Info{Mode: uint32(h.Mode) & 0o777}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil, nil
	case tar.TypeReg, tar.TypeGNUSparse:
		i.Type, i.Size = wire.TypeFile, h.Size
		i.Mtime, i.Nanos = h.ModTime.Unix(), uint32(h.ModTime.Nanosecond())
	case tar.TypeDir:
		i.Type = wire.TypeDir
	case tar.TypeSymlink:
		i.Type, i.Link = wire.TypeSymlink, h.Linkname
	case tar.TypeLink:
		i.Type = wire.TypeLink
	default:
		return nil, archiveError("%q is neither a file, a directory nor a link (type %q)", sbxerr.Clip(h.Name), h.Typeflag)
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return nil, err
	}
	if i.Path = name; name == "" {
		if i.Type != wire.TypeDir {
			return nil, archiveError("%q names no entry", sbxerr.Clip(h.Name))
		}
		return nil, nil // the target itself
	}
	return i, cleanLink(i, h)
}

// cleanName returns a name as a plain path below the target: "" is the target.
func cleanName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", archiveError("the name %q holds a NUL", sbxerr.Clip(name))
	}
	if strings.HasPrefix(name, "/") {
		return "", archiveError("the name %q is absolute", sbxerr.Clip(name))
	}
	var elements []string
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == ".":
		case element == "..":
			return "", archiveError("the name %q holds \"..\"", sbxerr.Clip(name))
		case len(element) > wire.MaxName:
			return "", archiveError("the name %q has an element of %d bytes, %d is the most", sbxerr.Clip(name), len(element), wire.MaxName)
		default:
			elements = append(elements, element)
		}
	}
	if len(elements) > wire.MaxDepth {
		return "", archiveError("the name %q is more than %d directories deep", sbxerr.Clip(name), wire.MaxDepth)
	}
	clean := strings.Join(elements, "/")
	if len(clean) > wire.MaxPath {
		return "", archiveError("the name %q has %d bytes, %d is the most", sbxerr.Clip(name), len(clean), wire.MaxPath)
	}
	return clean, nil
}

// cleanLink checks where a link leads. A symlink may lead anywhere inside: the
// sandbox could make it itself, and nothing here follows it.
func cleanLink(i *wire.Info, h *tar.Header) error {
	switch i.Type {
	case wire.TypeSymlink:
		if i.Link == "" || len(i.Link) > wire.MaxPath || strings.ContainsRune(i.Link, 0) {
			return archiveError("the target of %q is empty, too long or holds a NUL", sbxerr.Clip(h.Name))
		}
	case wire.TypeLink:
		target, err := cleanName(h.Linkname)
		if err != nil {
			return err
		}
		if target == "" {
			return archiveError("the hard link %q leads nowhere", sbxerr.Clip(h.Name))
		}
		i.Link = target
	}
	return nil
}

func archiveError(format string, args ...any) error {
	return sbxerr.New(sbxerr.Archive, "files.copy", format, args...)
}
