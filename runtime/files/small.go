package files

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// Stat describes the entry at path; with follow, what a symlink leads to.
func (c *Client) Stat(ctx context.Context, path string, follow bool) (Info, error) {
	if err := checkPath(path); err != nil {
		return Info{}, err
	}
	r := wire.Request{Op: wire.OpStat, Path: path}
	if follow {
		r.Flags |= wire.FlagFollow
	}
	return c.describe(ctx, r, subject{verb: "stat", path: path}, path)
}

// describe makes a request that is answered with one entry, at path.
func (c *Client) describe(ctx context.Context, r wire.Request, what subject, path string) (info Info, err error) {
	err = c.call(ctx, r, func() error {
		i, err := c.entry(c.limits.Patience, what)
		if err != nil {
			return err
		}
		info = infoOf(i, path)
		return c.done(c.limits.Patience, what)
	})
	return info, err
}

// ListDir returns the entries of a directory, by path, down to depth levels; 0
// and 1 are its own entries. Truncated means that there are more.
func (c *Client) ListDir(ctx context.Context, path string, depth uint32) (list []Info, truncated bool, err error) {
	if err := checkPath(path); err != nil {
		return nil, false, err
	}
	if depth > wire.MaxDepth {
		return nil, false, sbxerr.New(sbxerr.APIUsage, "files.list", "a depth of %d is above %d", depth, wire.MaxDepth)
	}
	r := wire.Request{Op: wire.OpList, Path: path, Depth: max(depth, 1), Limit: c.limits.ListEntries}
	err = c.call(ctx, r, func() (err error) {
		list, truncated, err = c.listing(r, subject{"list", path, false})
		return err
	})
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Path, b.Path) })
	return list, truncated, err
}

// listing reads entries up to Done. Past the limit of bytes it drops them.
func (c *Client) listing(r wire.Request, what subject) (list []Info, truncated bool, err error) {
	room := c.limits.ListBytes
	for n := int64(0); ; n++ {
		kind, body, err := c.answer(c.limits.Patience, what)
		if err != nil {
			return nil, false, err
		}
		if kind == wire.KindDone {
			d, err := c.doneOf(kind, body)
			return list, truncated || d.Truncated, err
		}
		i, err := entryOf(kind, body)
		if err != nil {
			return nil, false, err
		}
		if err := checkListed(i, n, r); err != nil {
			return nil, false, err
		}
		if room -= int64(len(i.Path) + len(i.Link)); room < 0 {
			truncated = true
			continue
		}
		list = append(list, infoOf(i, i.Path))
	}
}

func checkListed(i wire.Info, n int64, r wire.Request) error {
	if n >= r.Limit {
		return broken(fmt.Errorf("it lists more than %d entries", r.Limit))
	}
	if uint32(strings.Count(i.Path, "/")) >= r.Depth {
		return broken(fmt.Errorf("it lists %q, deeper than asked", sbxerr.Clip(i.Path)))
	}
	return checkBelow(i.Path)
}

// MakeDir makes a directory, with mode or 0755. With parents, it makes what is
// missing above, and a directory that exists is no error and keeps its mode.
func (c *Client) MakeDir(ctx context.Context, path string, mode *uint32, parents bool) (Info, error) {
	path, err := checkTarget(path)
	if err != nil {
		return Info{}, err
	}
	r := wire.Request{Op: wire.OpMakeDir, Path: path}
	if err := setMode(&r, mode); err != nil {
		return Info{}, err
	}
	if parents {
		r.Flags |= wire.FlagParents
	}
	return c.describe(ctx, r, subject{verb: "make", path: path}, path)
}

// setMode gives r a mode. Only permissions can be asked for.
func setMode(r *wire.Request, mode *uint32) error {
	if mode == nil {
		return nil
	}
	if *mode&^0o777 != 0 {
		return sbxerr.New(sbxerr.APIUsage, "files.check", "mode %#o has more than permission bits (0777)", *mode)
	}
	r.Mode = *mode
	r.Flags |= wire.FlagMode
	return nil
}

// Move renames an entry. What is at the new path is replaced only with replace,
// and then in one step (rename(2)). Both must be on one file system.
func (c *Client) Move(ctx context.Context, from, to string, replace bool) (Info, error) {
	from, err := checkTarget(from)
	if err != nil {
		return Info{}, err
	}
	if to, err = checkTarget(to); err != nil {
		return Info{}, err
	}
	r := wire.Request{Op: wire.OpMove, Path: from, To: to}
	if replace {
		r.Flags |= wire.FlagReplace
	}
	return c.describe(ctx, r, subject{verb: "move", path: from}, to)
}

// Remove removes a file, symlink or empty directory; with recursive, a directory
// and all below it, following no symlink.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	path, err := checkTarget(path)
	if err != nil {
		return err
	}
	r := wire.Request{Op: wire.OpRemove, Path: path}
	if recursive {
		r.Flags |= wire.FlagRecursive
	}
	return c.call(ctx, r, func() error {
		return c.done(c.limits.Slow, subject{verb: "remove", path: path})
	})
}

// Watch reports changes of path, and of all below it with recursive, until ctx
// ends or an error; the Client is then spent. ready is called first: what
// changes after that is reported. A slow callback loses no event silently: the
// kernel's queue overflows, which is an event itself. What is made in a new
// directory while its watch is being set up may be reported twice.
func (c *Client) Watch(ctx context.Context, path string, recursive bool, ready func(), event func(Event) error) error {
	if err := checkPath(path); err != nil {
		return err
	}
	r := wire.Request{Op: wire.OpWatch, Path: path}
	if recursive {
		r.Flags |= wire.FlagRecursive
	}
	what := subject{verb: "watch", path: path}
	return c.call(ctx, r, func() error {
		kind, _, err := c.answer(c.limits.Patience, what)
		if err == nil && kind != wire.KindReady {
			err = unexpected(kind)
		}
		if err != nil {
			return err
		}
		ready()
		for {
			if err := c.event(what, event); err != nil {
				return err
			}
		}
	})
}

func (c *Client) event(what subject, event func(Event) error) error {
	kind, body, err := c.answer(0, what)
	if err == nil && kind != wire.KindEvent {
		err = unexpected(kind)
	}
	if err != nil {
		return err
	}
	e, err := wire.DecodeEvent(body)
	if err != nil {
		return broken(err)
	}
	path := what.path
	if e.Path != "" {
		if err := checkBelow(e.Path); err != nil {
			return err
		}
		path = strings.TrimRight(path, "/") + "/" + e.Path
	}
	return event(Event{Path: path, Type: e.Type.String()})
}
