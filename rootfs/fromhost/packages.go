package fromhost

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Package is an installed package.
type Package struct {
	Name    string
	Version string
	Arch    string

	depends    []anyOf // all of them
	recommends []anyOf
	provides   []relation
	foreign    bool              // satisfies dependencies of packages of any architecture
	config     map[string]string // configuration file: its digest as it came, hexadecimal
}

// anyOf are alternatives, the preferred first.
type anyOf []relation

// relation names a package or what one provides, perhaps with a version.
type relation struct {
	name    string
	op      string // "", "<<", "<=", "=", ">=" or ">>"
	version string
}

// packageFile is a file as its package names it, and where it is on the host.
type packageFile struct {
	path   string
	source string // differs from path where another package diverted it
}

// database is what a package manager knows.
type database interface {
	// load returns all installed packages.
	load(ctx context.Context) ([]*Package, error)
	// files returns what p brought. chosen are all packages that are copied.
	files(p *Package, chosen []*Package) ([]packageFile, error)
	// owner names the package that brought one of paths.
	owner(paths ...string) (name string, ok bool)
}

// index finds packages by name and by what they provide.
type index struct {
	byName    map[string][]*Package
	providers map[string][]provider
	names     []string
}

type provider struct {
	pkg     *Package
	version string // of what is provided; "" for none
}

func newIndex(all []*Package) *index {
	x := &index{byName: map[string][]*Package{}, providers: map[string][]provider{}}
	for _, p := range all {
		if x.byName[p.Name] == nil {
			x.names = append(x.names, p.Name)
		}
		x.byName[p.Name] = append(x.byName[p.Name], p)
		for _, r := range p.provides {
			x.providers[r.name] = append(x.providers[r.name], provider{pkg: p, version: r.version})
		}
	}
	slices.Sort(x.names)
	return x
}

// find returns the package that a request calls NAME or NAME:ARCH: the one of
// the architecture native where several are installed.
func (x *index) find(name, native string) *Package {
	name, arch, qualified := strings.Cut(name, ":")
	if qualified {
		native = arch
	}
	var best *Package
	for _, p := range x.byName[name] {
		switch {
		case p.Arch == native:
			return p
		case qualified && p.Arch != "all" && p.Arch != "noarch":
		case best == nil:
			best = p
		}
	}
	return best
}

// satisfy returns the installed package that meets r for a package of
// architecture arch, or nil.
func (x *index) satisfy(r relation, arch string) *Package {
	var found []*Package
	for _, p := range x.byName[r.name] {
		if r.allows(p.Version) {
			found = append(found, p)
		}
	}
	for _, v := range x.providers[r.name] {
		if r.op == "" || v.version != "" && r.allows(v.version) {
			found = append(found, v.pkg)
		}
	}
	if len(found) == 0 {
		return nil
	}
	// Stable, so a package of that name goes before one that provides it.
	slices.SortStableFunc(found, func(a, b *Package) int {
		return cmp.Compare(a.distance(arch), b.distance(arch))
	})
	return found[0]
}

// distance says how well p serves packages of architecture arch: 0 best.
func (p *Package) distance(arch string) int {
	switch {
	case p.Arch == arch:
		return 0
	case p.Arch == "all", p.Arch == "noarch", arch == "all", arch == "noarch":
		return 1
	case p.foreign:
		return 2
	}
	return 3
}

func (r relation) allows(version string) bool {
	c := compareVersions(version, r.version)
	switch r.op {
	case "":
		return true
	case "<<":
		return c < 0
	case "<=":
		return c <= 0
	case "=":
		return c == 0
	case ">=":
		return c >= 0
	case ">>":
		return c > 0
	}
	return false
}

// closure returns roots and all that they depend on, by name, and the
// dependencies that no installed package meets.
func (x *index) closure(roots []*Package) (all []*Package, unmet []string) {
	seen := map[*Package]bool{}
	queue := slices.Clone(roots)
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p] {
			continue
		}
		seen[p] = true
		all = append(all, p)
		for _, alternatives := range p.depends {
			if d := x.first(alternatives, p.Arch); d != nil {
				queue = append(queue, d)
			} else {
				unmet = append(unmet, p.Name+" needs "+alternatives.String())
			}
		}
	}
	slices.SortFunc(all, func(a, b *Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch))
	})
	slices.Sort(unmet)
	return all, slices.Compact(unmet)
}

// first returns the package of the first alternative that is installed.
func (x *index) first(alternatives anyOf, arch string) *Package {
	for _, r := range alternatives {
		if p := x.satisfy(r, arch); p != nil {
			return p
		}
	}
	return nil
}

func (a anyOf) String() string {
	names := make([]string, len(a))
	for i, r := range a {
		names[i] = r.name
		if r.op != "" {
			names[i] += " (" + r.op + " " + r.version + ")"
		}
	}
	return strings.Join(names, " | ")
}

// near returns up to three installed names that look like name: the likely
// misspelling first, then the shortest names that contain it or are part of it.
func (x *index) near(name string) []string {
	name, _, _ = strings.Cut(name, ":")
	var found []string
	if len(name) >= minContained {
		found = slices.DeleteFunc(slices.Clone(x.names), func(n string) bool {
			return !strings.Contains(n, name) && (len(n) < 3 || !strings.Contains(name, n))
		})
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	}
	if n := sbxerr.Nearest(name, x.names); n != "" {
		found = slices.Insert(slices.DeleteFunc(found, func(f string) bool { return f == n }), 0, n)
	}
	return found[:min(3, len(found))]
}

// minContained is the length from which a name that contains another one is
// worth a hint: shorter ones are part of too many.
const minContained = 6
