package files

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// Read writes length bytes of a regular file from offset on to w, or fewer where
// it ends; a length of 0 is all. info is called first, and may refuse. An error
// of info or w is returned as it is.
func (c *Client) Read(ctx context.Context, path string, offset, length int64, info func(Info) error, w io.Writer) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if offset < 0 || length < 0 {
		return sbxerr.New(sbxerr.APIUsage, "files.read", "offset %d or length %d is negative", offset, length)
	}
	r := wire.Request{Op: wire.OpRead, Path: path, Offset: offset, Limit: length}
	what := subject{verb: "read", path: path}
	return c.call(ctx, r, func() error {
		i, err := c.entry(c.limits.Patience, what)
		if err != nil {
			return err
		}
		if err := info(infoOf(i, path)); err != nil {
			return err
		}
		most := c.limits.Bytes
		if length > 0 {
			most = min(most, length)
		}
		return c.content(what, most, length > 0 && length <= c.limits.Bytes, w)
	})
}

// content copies data up to Done, at most so many bytes. More is a lie where the
// process was told that limit, else too much.
func (c *Client) content(what subject, most int64, told bool, w io.Writer) error {
	for left := most; ; {
		kind, body, err := c.answer(c.limits.Patience, what)
		if err != nil {
			return err
		}
		if kind != wire.KindData {
			_, err := c.doneOf(kind, body)
			return err
		}
		if left -= int64(len(body)); left < 0 && told {
			return broken(fmt.Errorf("it sends more than %d bytes", most))
		}
		if left < 0 {
			return tooManyBytes(what, most)
		}
		if _, err := w.Write(body); err != nil {
			return err
		}
	}
}

func tooManyBytes(what subject, most int64) error {
	return sbxerr.New(sbxerr.FileTooBig, "files."+what.verb, "%s %q: there are more than %d bytes", what.verb, sbxerr.Clip(what.path), most)
}

// Write replaces the file at path, or makes it, with all of content: in one step
// at the end, so that an error leaves what was there and nothing else. The mode
// is the one given, else that of the file that is replaced, else 0644. A symlink
// is followed. With parents, missing directories are made and stay. An error of
// content is returned, with SBX-002 where it has no code of its own.
func (c *Client) Write(ctx context.Context, path string, mode *uint32, parents bool, content io.Reader) (info Info, err error) {
	if path, err = checkFile(path); err != nil {
		return Info{}, err
	}
	r := wire.Request{Op: wire.OpWrite, Path: path}
	if err := setMode(&r, mode); err != nil {
		return Info{}, err
	}
	if parents {
		r.Flags |= wire.FlagParents
	}
	what := subject{verb: "write", path: path}
	err = c.call(ctx, r, func() error {
		kind, body, err := c.upload(what, c.limits.Patience, func(u *upload) error {
			_, err := u.data(content)
			return err
		})
		if err != nil {
			return err
		}
		i, err := entryOf(kind, body)
		if err != nil {
			return err
		}
		info = infoOf(i, path)
		return c.done(c.limits.Patience, what)
	})
	return info, err
}

// checkFile is checkTarget for a path that cannot be a directory's.
func checkFile(path string) (string, error) {
	trimmed, err := checkTarget(path)
	if err == nil && trimmed != path {
		return "", pathError("path %q ends with a slash, which no file's does", sbxerr.Clip(path))
	}
	return trimmed, err
}
