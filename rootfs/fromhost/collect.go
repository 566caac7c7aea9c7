package fromhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Collect reads the host and plans an image of what r names and of all that
// this needs. It changes nothing. Everything that is wrong with the request is
// reported at once. Errors are SBX-101 and SBX-102 for a request that can never
// succeed, SBX-204 beyond a limit, SBX-002 when ctx ends, and SBX-209 else.
func Collect(ctx context.Context, h Host, r Request) (_ *Plan, err error) {
	const op = "fromhost.collect"
	if err := r.Validate(); err != nil {
		return nil, err
	}
	t, err := openTree(h.Root)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.FromHost, op, err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	soft, err := openSoftware(ctx, t, h)
	if err != nil {
		return nil, err
	}
	c := newCollector(ctx, t, soft, r.Limits)
	roots, errPackages := soft.requested(r.Packages)
	paths, errPaths := c.requested(r.Paths)
	if err := errors.Join(errPackages, errPaths); err != nil {
		return nil, sbxerr.Wrap(sbxerr.FromHost, op, err)
	}
	if err := c.collect(r, roots, paths); err != nil {
		return nil, coded(err)
	}
	return c.plan(h.Root, paths), nil
}

// coded gives err the package's code unless it has a better one.
func coded(err error) error {
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	return sbxerr.Wrap(sbxerr.FromHost, "fromhost.collect", err)
}

func newCollector(ctx context.Context, t *tree, soft software, l Limits) *collector {
	alive := func() error {
		return sbxerr.Wrap(sbxerr.Canceled, "fromhost.collect", context.Cause(ctx))
	}
	return &collector{
		alive: alive, tree: t, limits: l, soft: soft, left: omissions{},
		set: map[string]*Entry{}, walked: map[string]bool{}, scanned: map[string]bool{},
		objects: map[string]*object{}, cache: readLoaderCache(t),
	}
}

// requestedPath is a path of the request and where it leads.
type requestedPath struct {
	asked string
	resolved
}

// requested resolves the paths of a request, and reports all that are refused.
func (c *collector) requested(paths []string) ([]requestedPath, error) {
	var found []requestedPath
	var errs []error
	for _, p := range paths {
		p = path.Clean(p)
		r, err := c.tree.resolve(p)
		if err == nil {
			err = checkPlace(p, r.path)
		} else {
			err = fmt.Errorf("path %q %w", p, err)
		}
		switch {
		case err != nil:
		case r.info.isDir() && !r.info.listable(), r.info.isRegular() && !r.info.readable():
			err = fmt.Errorf("path %q %w", p, errHidden)
		case !r.info.isDir() && !r.info.isRegular():
			err = fmt.Errorf("path %q %w", p, errSpecial)
		}
		errs = append(errs, err)
		found = append(found, requestedPath{asked: p, resolved: r})
	}
	return found, errors.Join(errs...)
}

// collect gathers everything. The order matters where one thing looks at what
// is there already: alternatives and the loader's cache come last.
func (c *collector) collect(r Request, roots []*Package, paths []requestedPath) error {
	if err := c.skeleton(); err != nil {
		return err
	}
	if err := c.asked(r, roots, paths); err != nil {
		return err
	}
	for _, step := range []func() error{c.shell, c.facts, c.certificates, c.settle, c.compiled, c.loaderCache} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.parents()
}

func (c *collector) asked(r Request, roots []*Package, paths []requestedPath) error {
	if !r.Minimal {
		roots = slices.Concat(c.soft.withRecommended(roots), c.soft.base())
	}
	if err := c.packages(roots); err != nil {
		return err
	}
	if !r.Minimal && c.soft.db == nil {
		if err := c.commands(); err != nil {
			return err
		}
	}
	for _, p := range paths {
		if err := c.path(p); err != nil {
			return err
		}
	}
	return nil
}

// path adds a requested path.
func (c *collector) path(p requestedPath) error {
	o := origin{why: p.asked, whole: true, scan: true}
	if err := c.passed(p.links, o); err != nil {
		return err
	}
	if p.info.isDir() {
		return c.directory(p.path, o)
	}
	return c.add(p.path, p.path, p.info, o)
}

// settle follows links, needs and alternatives until nothing more is added.
func (c *collector) settle() error {
	for before := -1; before != len(c.set); {
		before = len(c.set)
		for _, step := range []func() error{c.follow, c.needs, c.alternatives} {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// parents adds the directories that entries lie in, so that every one of them
// is a directory in the image as well.
func (c *collector) parents() error {
	for _, p := range slices.Sorted(maps.Keys(c.set)) {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if e := c.set[dir]; e != nil {
				if e.Kind != Dir {
					return fmt.Errorf("%q lies in %q, which is a %s: the host changed while it was read", p, dir, e.Kind)
				}
				continue
			}
			if err := c.put(&Entry{Path: dir, Kind: Dir, Mode: 0o755, For: c.set[p].For}); err != nil {
				return err
			}
		}
	}
	return nil
}

// plan renders what was collected.
func (c *collector) plan(root string, paths []requestedPath) *Plan {
	p := &Plan{
		Root: root, Packages: []*Package{}, LeftOut: c.left.counts(),
		Env: environment(paths, c.set), limits: c.limits,
	}
	first := map[inode]string{}
	for _, name := range slices.Sorted(maps.Keys(c.set)) {
		e := *c.set[name]
		if at, seen := first[e.id]; seen && e.id != (inode{}) {
			e = Entry{Path: e.Path, Kind: Hardlink, Mode: e.Mode, Link: at, For: e.For}
		} else if e.id != (inode{}) {
			first[e.id] = e.Path
		}
		p.Bytes += e.Size
		p.Entries = append(p.Entries, e)
	}
	for pkg := range c.soft.chosen {
		p.Packages = append(p.Packages, pkg)
	}
	slices.SortFunc(p.Packages, func(a, b *Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch))
	})
	p.Warnings = append(c.hints(paths), c.left.warnings()...)
	return p
}

// hints says where a package would have been the better request.
func (c *collector) hints(paths []requestedPath) []string {
	hints := []string{}
	for _, p := range paths {
		if c.soft.db == nil || p.info.isDir() {
			continue
		}
		if name, ok := c.soft.db.owner(aliases(p.path)...); ok {
			hints = append(hints, fmt.Sprintf(
				"%s comes from package %s: only the file and its libraries were taken; --package %s brings all that it needs",
				p.asked, name, strings.TrimSuffix(name, ":"+c.soft.native)))
		}
	}
	return hints
}
