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

// maxLeftOut is how many names of what is left out are kept.
const maxLeftOut = 10

// CopyOut writes, up to most bytes of content, the file or tree at path to w as a tar that is safe to unpack:
// regular files, directories, and symlinks that stay in the tree; named below
// the last element of path, or "." where that is "/", "." or ".."; without
// owners and set-id bits, times in whole seconds. A further name of a file is a
// copy. A symlink at path is followed. What is left out is in Copied; below path,
// that is also what the sandbox's user may not read, and /proc and /sys. An error
// of w is returned as it is; after any error, the tar has no proper end. Holes and
// further names count in full: a tree may be much larger than what it takes.
func (c *Client) CopyOut(ctx context.Context, path string, most int64, w io.Writer) (Copied, error) {
	if err := checkPath(path); err != nil {
		return Copied{}, err
	}
	base := baseOf(path)
	if !plainName(base) {
		return Copied{}, pathError("the name %q has control characters or is not UTF-8, which no archive gets", sbxerr.Clip(base))
	}
	o := copyOut{
		client: c, what: subject{"copy", path, true}, base: base,
		out: tar.NewWriter(w), most: most,
	}
	err := c.call(ctx, wire.Request{Op: wire.OpCopyOut, Path: path}, o.run)
	return o.copied, err
}

// copyOut is one CopyOut under way.
type copyOut struct {
	client *Client
	what   subject
	base   string
	tree   tree
	out    *tar.Writer
	copied Copied
	sent   int64 // entries, also those that are left out
	bytes  int64 // that were announced
	most   int64 // that may be
}

func (o *copyOut) run() error {
	for {
		kind, body, err := o.client.answer(o.client.limits.Patience, o.what)
		if err != nil {
			return err
		}
		if kind == wire.KindDone {
			if _, err := o.client.doneOf(kind, body); err != nil {
				return err
			}
			return o.finish()
		}
		i, err := entryOf(kind, body)
		if err != nil {
			return err
		}
		if err := o.entry(i); err != nil {
			return err
		}
	}
}

func (o *copyOut) finish() error {
	if !o.tree.started {
		return broken(errors.New("it copies nothing"))
	}
	return o.out.Close()
}

func (o *copyOut) entry(i wire.Info) error {
	skip, err := o.tree.place(i)
	if err != nil {
		return err
	}
	if err := o.count(i); err != nil {
		return err
	}
	if o.sent == 1 && i.Type != wire.TypeDir && i.Type != wire.TypeFile {
		return sbxerr.New(sbxerr.FileKind, "files.copy", "copy %q: it is a %s, only files and directories are copied", sbxerr.Clip(o.what.path), i.Type)
	}
	if skip {
		o.leaveOut(i)
	} else if err := o.out.WriteHeader(headerOf(i, o.base)); err != nil {
		return err
	} else {
		o.copied.Entries++
	}
	if i.Type != wire.TypeFile || i.Size == 0 {
		return nil
	}
	return o.content(i, skip)
}

func (o *copyOut) count(i wire.Info) error {
	if o.sent++; o.sent > o.client.limits.ArchiveEntries {
		return sbxerr.New(sbxerr.FileTooBig, "files.copy", "copy %q: there are more than %d entries", sbxerr.Clip(o.what.path), o.client.limits.ArchiveEntries)
	}
	if i.Type == wire.TypeFile {
		if i.Size > o.client.limits.Bytes-o.bytes {
			return tooManyBytes(o.what, o.client.limits.Bytes)
		}
		if o.bytes += i.Size; o.bytes > o.most {
			return sbxerr.New(sbxerr.CopyTooBig, "files.copy", "copy %q: there are more than %d bytes", sbxerr.Clip(o.what.path), o.most)
		}
	}
	return nil
}

func (o *copyOut) leaveOut(i wire.Info) {
	if o.copied.LeftOut++; len(o.copied.Names) < maxLeftOut {
		o.copied.Names = append(o.copied.Names, strings.TrimRight(o.what.path, "/")+"/"+i.Path)
	}
}

// content copies exactly as many bytes as the entry says.
func (o *copyOut) content(i wire.Info, skip bool) error {
	for left := i.Size; left > 0; {
		kind, body, err := o.client.answer(o.client.limits.Patience, o.what)
		if err != nil {
			return err
		}
		if kind != wire.KindData {
			return unexpected(kind)
		}
		if left -= int64(len(body)); left < 0 {
			return broken(fmt.Errorf("%q is longer than it said", sbxerr.Clip(i.Path)))
		}
		if skip {
			continue
		}
		if _, err := o.out.Write(body); err != nil {
			return err
		}
		o.copied.Bytes += int64(len(body))
	}
	return nil
}
