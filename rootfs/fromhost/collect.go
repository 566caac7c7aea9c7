package fromhost

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// requestedPath is a path of the request and where it leads.
type requestedPath struct {
	asked string
	resolved
}

// collect gathers what r names and all that this needs. Everything that is
// wrong with the request is reported at once.
func (c *collector) collect(r Request) (paths []requestedPath, err error) {
	if err := c.openSoftware(); err != nil {
		return nil, err
	}
	var reasons sbxerr.Reasons
	roots := c.index.requested(r.Packages, &reasons)
	if c.db == nil && len(r.Packages) > 0 {
		return nil, errors.New("packages cannot be found: this host has neither a dpkg nor an rpm database")
	}
	for _, p := range r.Paths {
		found, err := c.requested(path.Clean(p))
		reasons.Add(err)
		paths = append(paths, found)
	}
	if err := reasons.Err(); err != nil {
		return nil, err
	}
	c.gather(roots, paths)
	return paths, c.err
}

func (c *collector) requested(p string) (requestedPath, error) {
	r, err := c.resolve(p)
	if err == nil {
		err = checkPlace(p, r.path)
	}
	if err == nil && !r.info.IsDir() && !r.info.Mode().IsRegular() {
		err = fmt.Errorf("path %q is no directory or regular file", p)
	}
	if err == nil {
		err = unix.Access(c.real(r.path), unix.R_OK)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("path %q is not readable by everybody", p)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		err = fmt.Errorf("path %q does not exist", p)
	case errors.Is(err, unix.ELOOP):
		err = fmt.Errorf("path %q is a chain of too many symbolic links", p)
	}
	return requestedPath{asked: p, resolved: r}, err
}

// gather adds everything. The order matters where one thing looks at what is
// there already: alternatives and the loader's cache come last.
func (c *collector) gather(roots []*pkg, paths []requestedPath) {
	c.skeleton()
	c.packages(c.withBase(roots))
	for _, p := range paths {
		o := origin{whole: true, scan: true}
		c.passed(p.links, o)
		if p.info.IsDir() {
			c.recurse(p.path, o)
		} else {
			c.add(p.path, p.path, p.info, o)
		}
	}
	c.chain("/bin/sh", origin{scan: true})
	c.chain("/etc/os-release", origin{})
	c.certificates()
	for before := -1; before != len(c.set) && c.err == nil; {
		before = len(c.set)
		c.follow()
		c.needs()
		c.alternatives()
	}
	c.compiled()
	c.loaderCache()
	for _, p := range c.paths() { // every directory is one in the image as well
		for dir := path.Dir(p); dir != "/" && c.set[dir] == nil; dir = path.Dir(dir) {
			c.dir(dir)
		}
	}
}

// paths returns those that were collected, sorted.
func (c *collector) paths() []string { return slices.Sorted(maps.Keys(c.set)) }

func (c *collector) summary() string {
	return fmt.Sprintf("%d packages, %d entries, %.1f MiB", len(c.chosen), len(c.set), float64(c.bytes)/(1<<20))
}

// hints says where a package would have been the better request.
func (c *collector) hints(paths []requestedPath) []string {
	var hints []string
	for _, p := range paths {
		if c.db == nil || p.info.IsDir() {
			continue
		}
		if name := c.db.owner(aliases(p.path)...); name != "" {
			hints = append(hints, fmt.Sprintf(
				"%s comes from package %s: only the file and its libraries were taken; --package %s brings all that it needs",
				p.asked, name, strings.TrimSuffix(name, ":"+c.index.native)))
		}
	}
	return hints
}

// coded gives err the package's code unless it has a better one.
func coded(err error) error {
	if err == nil || sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	return sbxerr.Wrap(sbxerr.FromHost, "fromhost.collect", err)
}
