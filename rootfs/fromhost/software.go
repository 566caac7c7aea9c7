package fromhost

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
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

// openSoftware reads the package database of the host.
func (c *collector) openSoftware() error {
	var err error
	switch {
	case c.exists(dpkgQuery) && c.exists(dpkgDir+"/status"):
		c.db, c.index, err = openDpkg(c.host)
	case c.exists(rpmProgram) && (c.exists("/usr/lib/sysimage/rpm") || c.exists("/var/lib/rpm")):
		c.db, c.index, err = openRPM(c.host)
	}
	return err
}

func (c *collector) exists(p string) bool {
	_, err := c.resolve(p)
	return err == nil
}

// withBase adds what the packages recommend themselves, as far as it is
// installed (gcc only recommends the C library's headers), and the base packages.
func (c *collector) withBase(roots []*pkg) []*pkg {
	all := slices.Clone(roots)
	for _, p := range roots {
		for _, alternatives := range p.recommends {
			all = append(all, c.index.satisfy(alternatives, p)...)
		}
	}
	for _, n := range basePackages {
		if p := c.index.find(n); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// packages adds the files of roots and of all that they depend on.
func (c *collector) packages(roots []*pkg) {
	all, unmet := c.index.closure(roots)
	for _, u := range unmet {
		c.left.add(leftDependency, u)
	}
	all = slices.DeleteFunc(all, func(p *pkg) bool { return c.chosen[p] })
	for _, p := range all {
		c.chosen[p], c.names[p.name] = true, true
	}
	for _, p := range all {
		files, err := c.db.files(p, func(name string) bool { return c.names[name] })
		if err != nil && c.err == nil {
			c.err = err
		}
		for i := range files {
			files[i].of = p.name
			c.packageFile(&files[i])
		}
	}
}

// packageFile adds f, which may be reached through links; those come too. A
// diverted file has the name that it had before another package, which is not
// copied, took that name.
func (c *collector) packageFile(f *packageFile) {
	if isDocumentation(f.path) || isDocumentation(f.source) {
		return
	}
	source, err := c.place(f.source)
	at := source
	if err == nil && f.path != f.source {
		if at, err = c.directory(path.Dir(f.path)); err == nil {
			at.path = path.Join(at.path, path.Base(f.path))
		}
	}
	switch {
	case err != nil:
		c.leave(f.path, err)
	case !c.stays(at.path) && !c.stays(source.path):
		c.passed(at.links, origin{})
		c.add(at.path, source.path, source.info, origin{file: f})
	}
}

// ownerOf adds the package that the file p, a path without links, comes from.
func (c *collector) ownerOf(p string) {
	if c.db == nil {
		return
	}
	owner := c.index.find(c.db.owner(aliases(p)...))
	if owner == nil {
		return
	}
	roots := []*pkg{owner}
	// Debian splits interpreters: python3-minimal has the program, python3 most
	// of the modules that scripts expect.
	if full, ok := strings.CutSuffix(owner.name, "-minimal"); ok {
		if p := c.index.find(full); p != nil {
			roots = append(roots, p)
		}
	}
	c.packages(roots)
}

// isCollected reports whether the package that p, a path without links, comes from was
// collected.
func (c *collector) isCollected(p string) bool {
	if c.db == nil {
		return false
	}
	owner := c.index.find(c.db.owner(aliases(p)...))
	return owner != nil && c.chosen[owner]
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
func (c *collector) compiled() {
	dirs := map[string]bool{}
	for p := range c.set {
		dirs[path.Dir(p)] = dirs[path.Dir(p)] || path.Ext(p) == ".py"
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if !dirs[dir] {
			continue
		}
		caches, _ := os.ReadDir(c.real(path.Join(dir, "__pycache__"))) // not missed
		for _, e := range caches {
			module, _, _ := strings.Cut(e.Name(), ".")
			i, err := e.Info()
			if err == nil && path.Ext(e.Name()) == ".pyc" && c.set[path.Join(dir, module+".py")] != nil {
				p := path.Join(dir, "__pycache__", e.Name())
				c.add(p, p, i, origin{})
			}
		}
	}
}
