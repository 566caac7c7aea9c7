package fromhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// basePackages is what an agent expects to find: a shell and the usual tools.
// Packages do not name what is essential as a dependency (Debian Policy 3.5),
// so this is also what makes their scripts run. Of Debian's essential set, what
// only administers a host (login, mount, init) is left out. Names of both
// families are given; what is not installed is not missed.
var basePackages = []string{
	"base-files", "bash", "coreutils", "dash", "debianutils", "diffutils", "filesystem", "findutils",
	"gawk", "glibc-common", "grep", "gzip", "hostname", "libc-bin", "mawk", "ncurses-base", "perl-base",
	"sed", "tar", "util-linux", "which",
}

// baseCommands stand for the base packages on a host without a known package
// manager.
var baseCommands = strings.Fields(`
awk base64 basename bash cat chmod cmp cp cut date diff dirname du echo egrep env expr false fgrep find
grep gunzip gzip head hostname id install ln ls mkdir mktemp mv nproc od paste printf ps pwd readlink
realpath rm rmdir sed seq sha256sum sleep sort stat tail tar tee test timeout touch tr true uname uniq
wc which xargs yes zcat`)

// software is the side of a collection that knows packages.
type software struct {
	db     database // nil where no package manager is known
	index  *index
	native string // architecture of the host's own packages
	chosen map[*Package]bool
}

// openSoftware reads the package database of the host.
func openSoftware(ctx context.Context, t *tree, h Host) (software, error) {
	s := software{chosen: map[*Package]bool{}, index: newIndex(nil)}
	d, err := openDpkg(t)
	if err != nil {
		return s, err
	}
	switch {
	case d != nil:
		s.db = d
	case h.RPM != nil && hasRPM(t):
		s.db = &rpm{query: h.RPM}
	default:
		return s, nil
	}
	all, err := s.db.load(ctx)
	if err != nil {
		return s, sbxerr.Wrap(sbxerr.FromHost, "fromhost.packages", err)
	}
	s.index = newIndex(all)
	s.native = nativeArch(all)
	return s, nil
}

// nativeArch is the architecture that most packages have.
func nativeArch(all []*Package) string {
	count := map[string]int{}
	for _, p := range all {
		if p.Arch != "all" && p.Arch != "noarch" {
			count[p.Arch]++
		}
	}
	best := ""
	for _, a := range slices.Sorted(maps.Keys(count)) {
		if best == "" || count[a] > count[best] {
			best = a
		}
	}
	return best
}

// requested finds the packages that a request names, or says for each that it
// cannot find why.
func (s *software) requested(names []string) (found []*Package, err error) {
	if len(names) > 0 && s.db == nil {
		return nil, errors.New("packages cannot be found: this host has neither a dpkg nor an rpm database")
	}
	var errs []error
	for _, n := range names {
		if p := s.index.find(n, s.native); p != nil {
			found = append(found, p)
			continue
		}
		errs = append(errs, s.missing(n))
	}
	return found, errors.Join(errs...)
}

func (s *software) missing(name string) error {
	bare, _, _ := strings.Cut(name, ":")
	if d, ok := s.db.(*dpkg); ok && slices.Contains(d.broken, bare) {
		return fmt.Errorf("package %q is only partly installed: finish with dpkg --configure", name)
	}
	var providers []string
	for _, v := range s.index.providers[bare] {
		providers = append(providers, v.pkg.Name)
	}
	if len(providers) > 0 {
		slices.Sort(providers)
		return fmt.Errorf("package %q is virtual: name one that provides it: %s", name, strings.Join(slices.Compact(providers), ", "))
	}
	if near := s.index.near(name); len(near) > 0 {
		return fmt.Errorf("package %q is not installed: did you mean %s?", name, strings.Join(near, ", "))
	}
	return fmt.Errorf("package %q is not installed", name)
}

// withRecommended adds what the packages recommend themselves, as far as it is
// installed: gcc only recommends the C library's headers. What those recommend
// in turn is not taken.
func (s *software) withRecommended(roots []*Package) []*Package {
	all := slices.Clone(roots)
	for _, p := range roots {
		for _, r := range p.recommends {
			if d := s.index.first(r, p.Arch); d != nil {
				all = append(all, d)
			}
		}
	}
	return all
}

// base returns the installed ones of the base packages.
func (s *software) base() []*Package {
	var all []*Package
	for _, n := range basePackages {
		if p := s.index.find(n, s.native); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// packages adds the files of roots and of all that they depend on.
func (c *collector) packages(roots []*Package) error {
	all, unmet := c.soft.index.closure(roots)
	for _, u := range unmet {
		c.leave(LeftDependency, u, nil)
	}
	all = slices.DeleteFunc(all, func(p *Package) bool { return c.soft.chosen[p] })
	for _, p := range all {
		c.soft.chosen[p] = true
	}
	chosen := slices.Collect(maps.Keys(c.soft.chosen))
	for _, p := range all {
		files, err := c.soft.db.files(p, chosen)
		if err != nil {
			return sbxerr.Wrap(sbxerr.FromHost, "fromhost.packages", err)
		}
		for _, f := range files {
			if err := c.packageFile(p, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) packageFile(p *Package, f packageFile) error {
	if isDocumentation(f.path) || isDocumentation(f.source) {
		c.leave(LeftDocumentation, f.path, nil)
		return nil
	}
	o := origin{why: p.Name}
	if sum, ok := p.config[f.path]; ok {
		return c.config(f, sum, o)
	}
	if f.path == f.source {
		return c.place(f.path, o)
	}
	return c.diverted(f, o)
}

// diverted adds a file under the name that it had before another package,
// which is not copied, took that name.
func (c *collector) diverted(f packageFile, o origin) error {
	source, err := c.tree.place(f.source)
	if err != nil {
		if !skippable(err) {
			return err
		}
		c.leave("", f.path, err)
		return nil
	}
	dir, err := c.tree.directory(path.Dir(f.path), 0)
	if err != nil {
		if !skippable(err) {
			return err
		}
		c.leave("", f.path, err)
		return nil
	}
	at := path.Join(dir.path, path.Base(f.path))
	if c.stays(at) || c.stays(source.path) {
		return nil
	}
	if err := c.passed(dir.links, o); err != nil {
		return err
	}
	return c.add(at, source.path, source.info, o)
}

// ownerOf adds the package that the file p, a path without links, comes from.
func (c *collector) ownerOf(p string) error {
	if c.soft.db == nil {
		return nil
	}
	name, ok := c.soft.db.owner(aliases(p)...)
	if !ok {
		return nil
	}
	pkg := c.soft.index.find(name, c.soft.native)
	if pkg == nil {
		return nil
	}
	roots := []*Package{pkg}
	// Debian splits interpreters: python3-minimal has the program, python3 most
	// of the modules that scripts expect.
	if full, ok := strings.CutSuffix(pkg.Name, "-minimal"); ok {
		if p := c.soft.index.find(full, c.soft.native); p != nil {
			roots = append(roots, p)
		}
	}
	return c.packages(roots)
}

// aliases are the names by which a package may list p: since /bin became a
// link to /usr/bin, lists hold both forms.
func aliases(p string) []string {
	all := []string{p}
	if short, ok := strings.CutPrefix(p, "/usr"); ok {
		for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
			if below(short, dir) {
				all = append(all, short)
			}
		}
	}
	return all
}

// compiled adds the byte code that Python keeps beside modules of packages. A
// script of the package makes it, so no list holds it; without it, each start
// in a read-only root compiles all modules again.
func (c *collector) compiled() error {
	modules := map[string]map[string]bool{} // directory: stems of the files
	for p, e := range c.set {
		if stem, ok := strings.CutSuffix(path.Base(p), ".py"); ok && e.Kind == File {
			dir := path.Dir(p)
			if modules[dir] == nil {
				modules[dir] = map[string]bool{}
			}
			modules[dir][stem] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(modules)) {
		cache := path.Join(dir, "__pycache__")
		names, err := c.tree.list(cache, maxNames)
		if err != nil {
			if skippable(err) {
				continue
			}
			return fmt.Errorf("list %q: %w", cache, err)
		}
		for _, n := range names {
			stem, _, _ := strings.Cut(n, ".")
			if !modules[dir][stem] || !strings.HasSuffix(n, ".pyc") {
				continue
			}
			if err := c.member(path.Join(cache, n), origin{why: "byte code of " + dir}); err != nil {
				return err
			}
		}
	}
	return nil
}
