package fromhost

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// entry is one path of the image. All belong to uid and gid 0.
type entry struct {
	path    string
	kind    byte // tar.TypeDir, tar.TypeReg or tar.TypeSymlink
	link    string
	source  string      // where the content is; empty: content
	info    fs.FileInfo // of source, when it was found
	content []byte
	whole   bool         // part of a requested directory: links to directories are followed
	file    *packageFile // nil where no package brought it
}

// origin says how an entry is wanted.
type origin struct {
	whole bool         // all of it: also follow links to directories
	scan  bool         // look for what it needs; packages say so themselves
	file  *packageFile // nil where no package brought it
}

// collector gathers the entries of one image. What concerns one path is left
// out and noted; an error ends the collection, and is kept.
type collector struct {
	*host
	limits  Limits
	err     error
	set     map[string]*entry // by path in the image
	bytes   int64
	walked  map[string]bool // directories that were added with their content
	left    omissions
	links   []*entry // not yet followed
	scans   []scan   // files not yet searched for needs
	scanned map[string]bool
	objects map[string]*object // ELF files by path; nil for other files
	cache   *ldCache
	db      database // nil where no package manager is known
	index   *index
	chosen  map[*pkg]bool
	names   map[string]bool // of chosen
}

func newCollector(r Request) *collector {
	h := &host{root: filepath.Clean(r.Root), dirs: map[string]resolved{}}
	if h.root == "/" {
		h.root = ""
	}
	c := &collector{
		host: h, limits: r.Limits, left: omissions{}, set: map[string]*entry{}, walked: map[string]bool{},
		scanned: map[string]bool{}, objects: map[string]*object{}, index: &index{}, chosen: map[*pkg]bool{},
		names: map[string]bool{},
	}
	if data, err := os.ReadFile(c.real(ldCachePath)); err == nil { // other loaders than glibc's have none
		c.cache, _ = parseLDCache(data) // nor one of another form
	}
	return c
}

// put adds e, within the limits.
func (c *collector) put(e *entry) {
	if c.err != nil || c.set[e.path] != nil {
		return
	}
	size := int64(len(e.content))
	if e.source != "" && e.kind == tar.TypeReg {
		size = e.info.Size()
	}
	if int64(len(c.set)) >= c.limits.Entries || size > c.limits.Bytes-c.bytes {
		c.err = sbxerr.New(sbxerr.ImageTooBig, "fromhost.collect",
			"more than %d entries or %d bytes: the limit is met at %q", c.limits.Entries, c.limits.Bytes, e.path)
		return
	}
	c.bytes += size
	c.set[e.path] = e
	if e.kind == tar.TypeSymlink {
		c.links = append(c.links, e)
	}
}

func (c *collector) dir(p string) { c.put(&entry{path: p, kind: tar.TypeDir}) }

// leave notes that p stays behind because of err.
func (c *collector) leave(p string, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		c.left.add(leftAbsent, p)
	case errors.Is(err, fs.ErrPermission):
		c.left.add(leftHidden, p)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENAMETOOLONG):
		c.left.add(leftSpecial, p)
	case c.err == nil:
		c.err = fmt.Errorf("read %q: %w", p, err)
	}
}

// stays reports whether p must stay behind, and notes that of credentials.
func (c *collector) stays(p string) bool {
	why, never := neverCopied(p)
	if why == credentials {
		c.left.add(leftSecret, p)
	}
	return never
}

// passed adds links that a path leads through.
func (c *collector) passed(links []string, o origin) {
	for _, l := range links {
		if !c.stays(l) {
			c.symlink(l, l, o)
		}
	}
}

// add puts the thing at source, of which i was found out, at p in the image. A
// directory comes without its content, a link without its target.
func (c *collector) add(p, source string, i fs.FileInfo, o origin) {
	switch e := c.set[p]; {
	case e != nil && o.whole && e.file != nil && !e.file.config:
		e.file = nil // a requested path is wanted as it is
	case e != nil:
	case i.IsDir():
		c.dir(p)
	case i.Mode().Type() == fs.ModeSymlink:
		c.symlink(p, source, o)
	case i.Mode().IsRegular():
		c.file(p, source, i, o)
	default:
		c.left.add(leftSpecial, p)
	}
}

func (c *collector) symlink(p, source string, o origin) {
	if c.set[p] != nil {
		return
	}
	text, err := os.Readlink(c.real(source))
	if err != nil {
		c.leave(source, err)
		return
	}
	c.put(&entry{path: p, kind: tar.TypeSymlink, link: text, whole: o.whole})
}

func (c *collector) file(p, source string, i fs.FileInfo, o origin) {
	if i.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		c.left.add(leftSetID, p)
	}
	if o.scan {
		c.scans = append(c.scans, scan{path: source, found: source, mode: i.Mode()})
	}
	c.put(&entry{path: p, kind: tar.TypeReg, source: source, info: i, file: o.file})
}

// recurse adds all of directory dir, a path without links, that is on the same
// file system.
func (c *collector) recurse(dir string, o origin) {
	var device uint64
	_ = filepath.WalkDir(c.real(dir), func(name string, d fs.DirEntry, err error) error {
		p := path.Clean("/" + name[len(c.root):])
		var i fs.FileInfo
		if err == nil {
			i, err = d.Info()
		}
		switch {
		case c.err != nil:
			return filepath.SkipAll
		case err != nil:
			c.leave(p, err)
			return nil
		case !d.IsDir():
			if !c.stays(p) {
				c.add(p, p, i, o)
			}
			return nil
		case c.walked[p] || c.stays(p):
			return filepath.SkipDir
		}
		here := i.Sys().(*syscall.Stat_t).Dev
		if p == dir {
			device = here
		} else if here != device {
			c.left.add(leftMount, p)
			return filepath.SkipDir
		}
		c.walked[p] = true
		c.dir(p)
		return nil
	})
}

// take adds r and the links on the way there, unless r must stay behind.
func (c *collector) take(r resolved, o origin) {
	if _, never := neverCopied(r.path); !never {
		c.passed(r.links, o)
		c.add(r.path, r.path, r.info, o)
	}
}

// chain adds where p leads and each link on the way there. A directory comes
// without its content. A target below /etc must be there already: a package or
// the certificates have brought it.
func (c *collector) chain(p string, o origin) {
	if r, err := c.resolve(p); err == nil && (!below(r.path, "/etc") || c.set[r.path] != nil) {
		c.take(r, o)
	}
}

// follow adds what the links lead to that were added since it was called last.
func (c *collector) follow() {
	for len(c.links) > 0 && c.err == nil {
		e := c.links[0]
		c.links = c.links[1:]
		o := origin{whole: e.whole, scan: true}
		r, err := c.resolve(e.path)
		switch {
		case err != nil:
		// A directory below /etc is never taken whole, even when it is there already:
		// what packages and certificates brought is not all that lies in it.
		case e.whole && r.info.IsDir() && !isShared(r.path) && !below(r.path, "/etc"):
			c.passed(r.links, o)
			c.recurse(r.path, o)
		case e.whole || !isDocumentation(r.path):
			c.chain(e.path, o)
		}
	}
}
