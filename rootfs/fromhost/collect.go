package fromhost

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

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
	var roots []*pkg
	var errs []error
	if c.db == nil && len(r.Packages) > 0 {
		errs = append(errs, errors.New("packages cannot be found: this host has neither a dpkg nor an rpm database"))
	} else {
		roots, err = c.index.requested(r.Packages)
		errs = append(errs, err)
	}
	for _, p := range r.Paths {
		found, err := c.requested(path.Clean(p))
		paths, errs = append(paths, found), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.gather(roots, paths)
	return paths, c.err
}

func (c *collector) requested(p string) (requestedPath, error) {
	r, err := c.resolve(p)
	if err == nil {
		if err := checkPlace(p, r.path); err != nil {
			return requestedPath{}, err
		}
		if !r.info.IsDir() && !r.info.Mode().IsRegular() {
			return requestedPath{}, fmt.Errorf("path %q is no directory or regular file", p)
		}
		var f *os.File
		if f, err = os.Open(c.real(r.path)); err == nil {
			err = f.Close()
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return requestedPath{}, fmt.Errorf("path %q is not readable by everybody", p)
	case errors.Is(err, fs.ErrNotExist):
		return requestedPath{}, fmt.Errorf("path %q does not exist", p)
	case err != nil:
		return requestedPath{}, fmt.Errorf("path %q: %w", p, err)
	}
	return requestedPath{asked: p, resolved: r}, nil
}

// gather adds everything. The order matters where one thing looks at what is
// there already: alternatives and the loader's cache come last.
func (c *collector) gather(roots []*pkg, paths []requestedPath) {
	c.skeleton()
	if c.db == nil {
		c.commands()
	} else {
		c.packages(c.withBase(roots))
	}
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
