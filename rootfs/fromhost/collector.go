package fromhost

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxNames bounds the names read from one directory.
const maxNames = 1 << 20

// collector gathers the entries of one plan. Its methods return an error only
// for what ends the whole collection; what concerns one path is left out.
type collector struct {
	alive   func() error // the cause when the caller went away
	tree    *tree
	limits  Limits
	set     map[string]*Entry // by path in the image
	bytes   int64
	walked  map[string]bool // directories that were added with their content
	left    omissions
	links   []*Entry // not yet followed
	scans   []scan   // files not yet searched for needs
	scanned map[string]bool
	objects map[string]*object // ELF files by path; nil for other files
	cache   *ldCache
	soft    software
}

// origin says why an entry is wanted.
type origin struct {
	why   string
	whole bool // all of it: also follow links to directories
	scan  bool // look for what it needs; packages say so themselves
}

// put adds e, within the limits.
func (c *collector) put(e *Entry) error {
	if err := c.alive(); err != nil {
		return err
	}
	if c.set[e.Path] != nil {
		return nil
	}
	if int64(len(c.set)) >= c.limits.Entries {
		return tooBig("entries", c.limits.Entries, e)
	}
	if e.Size > c.limits.Bytes-c.bytes {
		return tooBig("bytes", c.limits.Bytes, e)
	}
	c.bytes += e.Size
	c.set[e.Path] = e
	if e.Kind == Symlink {
		c.links = append(c.links, e)
	}
	return nil
}

func tooBig(what string, limit int64, e *Entry) error {
	return sbxerr.New(sbxerr.ImageTooBig, "fromhost.collect",
		"more than %d %s: the limit is met at %q, wanted for %s", limit, what, e.Path, e.For)
}

// leave notes that p stays behind, because of err if that says more.
func (c *collector) leave(r Reason, p string, err error) {
	switch {
	case errors.Is(err, errAbsent):
		r = LeftAbsent
	case errors.Is(err, errHidden):
		r = LeftHidden
	case errors.Is(err, errSpecial), errors.Is(err, errLoop), errors.Is(err, errDeep), errors.Is(err, errPseudo):
		r = LeftSpecial
	}
	c.left.add(r, p)
}

// stays reports whether p must stay behind, and notes it.
func (c *collector) stays(p string) bool {
	why, never := neverCopied(p)
	switch {
	case !never:
		return false
	case why == credentials:
		c.leave(LeftSecret, p, nil)
	default:
		c.leave(LeftState, p, nil)
	}
	return true
}

// place adds what is at p, which may be reached through links; those come too.
// A directory comes without its content, a link without its target.
func (c *collector) place(p string, o origin) error {
	r, err := c.tree.place(p)
	if err != nil {
		if !skippable(err) {
			return err
		}
		c.leave("", p, err)
		return nil
	}
	if c.stays(r.path) {
		return nil
	}
	if err := c.passed(r.links, o); err != nil {
		return err
	}
	return c.add(r.path, r.path, r.info, o)
}

// passed adds links that a path leads through.
func (c *collector) passed(links []string, o origin) error {
	for _, l := range links {
		if c.stays(l) {
			continue
		}
		if err := c.symlink(l, l, o); err != nil {
			return err
		}
	}
	return nil
}

// add puts the thing at source, of which i was found out, at p in the image.
func (c *collector) add(p, source string, i info, o origin) error {
	if c.set[p] != nil {
		return nil
	}
	switch {
	case i.isDir():
		return c.put(&Entry{Path: p, Kind: Dir, Mode: 0o755, For: o.why})
	case i.isSymlink():
		return c.symlink(p, source, o)
	case i.isRegular():
		return c.file(p, source, i, o)
	}
	c.leave(LeftSpecial, p, nil)
	return nil
}

func (c *collector) symlink(p, source string, o origin) error {
	if c.set[p] != nil {
		return nil
	}
	text, err := c.tree.readlink(source)
	if err != nil {
		if !skippable(err) {
			return fmt.Errorf("read link %q: %w", source, err)
		}
		c.leave("", source, err)
		return nil
	}
	return c.put(&Entry{Path: p, Kind: Symlink, Mode: 0o777, Link: text, For: o.why, whole: o.whole})
}

func (c *collector) file(p, source string, i info, o origin) error {
	if !i.readable() {
		c.leave(LeftHidden, p, nil)
		return nil
	}
	if i.mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		c.leave(LeftSetID, p, nil)
	}
	e := &Entry{
		Path: p, Kind: File, Mode: permissions(i.mode), Size: i.size, ModTime: i.mtime.Sec,
		Source: source, For: o.why,
	}
	if i.nlink > 1 {
		e.id = inode{i.dev, i.ino}
	}
	if o.scan {
		c.scans = append(c.scans, scan{path: source, found: source, mode: i.mode})
	}
	return c.put(e)
}

// permissions keeps what everybody may do. The owner changes, so what is meant
// for the owner's group means nothing any more.
func permissions(mode uint32) uint32 {
	if mode&searchBits == searchBits {
		return 0o755
	}
	return 0o644
}

// directory adds all of directory dir, a path without links.
func (c *collector) directory(dir string, o origin) error {
	if c.walked[dir] || c.stays(dir) {
		return nil
	}
	c.walked[dir] = true
	names, err := c.tree.list(dir, maxNames)
	if err != nil {
		if !skippable(err) {
			return fmt.Errorf("list %q: %w", dir, err)
		}
		c.leave("", dir, err)
		return nil
	}
	if err := c.put(&Entry{Path: dir, Kind: Dir, Mode: 0o755, For: o.why}); err != nil {
		return err
	}
	for _, n := range names {
		if err := c.member(path.Join(dir, n), o); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) member(p string, o origin) error {
	if c.stays(p) {
		return nil
	}
	i, err := c.tree.lstat(p)
	switch {
	case err != nil && !skippable(err):
		return fmt.Errorf("stat %q: %w", p, err)
	case err != nil:
		c.leave("", p, err)
		return nil
	case i.isDir():
		return c.directory(p, o)
	}
	return c.add(p, p, i, o)
}

// chain adds where p leads and each link on the way there. A directory comes
// without its content.
func (c *collector) chain(p string, o origin) error {
	r, err := c.tree.resolve(p)
	if err != nil {
		if !skippable(err) {
			return fmt.Errorf("follow %q: %w", p, err)
		}
		c.leave(LeftLinks, p, nil)
		return nil
	}
	if _, never := neverCopied(r.path); never || c.isHostConfig(r.path) {
		c.leave(LeftLinks, p, nil)
		return nil
	}
	if err := c.passed(r.links, o); err != nil {
		return err
	}
	return c.add(r.path, r.path, r.info, o)
}

// isHostConfig reports whether p is below /etc and no package that is copied
// has brought it.
func (c *collector) isHostConfig(p string) bool {
	return below(p, "/etc") && c.set[p] == nil
}

// follow adds what the links lead to that were added since it was called last.
func (c *collector) follow() error {
	for len(c.links) > 0 {
		e := c.links[0]
		c.links = c.links[1:]
		if err := c.followLink(e); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) followLink(e *Entry) error {
	o := origin{why: e.For, whole: e.whole, scan: true}
	r, err := c.tree.resolve(e.Path)
	// A directory below /etc is never taken whole, even when it is there already:
	// what packages and certificates brought is not all that lies in it.
	if err == nil && r.info.isDir() && e.whole && !isShared(r.path) && !below(r.path, "/etc") {
		if err := c.passed(r.links, o); err != nil {
			return err
		}
		return c.directory(r.path, o)
	}
	if err == nil && isDocumentation(r.path) && !e.whole {
		c.leave(LeftLinks, e.Path, nil)
		return nil
	}
	return c.chain(e.Path, o)
}
