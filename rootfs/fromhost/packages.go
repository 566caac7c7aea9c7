package fromhost

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// pkg is an installed package.
type pkg struct {
	name, arch string
	depends    []anyOf // all of them
	recommends []anyOf
	provides   []string
	files      []packageFile     // rpm only
	config     map[string]string // configuration file: its digest as it came, hexadecimal
}

// anyOf are alternatives, the preferred first, without versions: the package
// manager has compared those.
type anyOf []string

// packageFile is a file as its package names it, and where it is on the host.
type packageFile struct {
	path   string
	source string // differs from path where another package diverted it
	of     string // the package's name
	digest string // as it came, hexadecimal: MD5 or SHA-256; "" for unknown
	config bool
}

// database is what a package manager knows.
type database interface {
	// files returns what p brought. chosen tells which packages are copied.
	files(p *pkg, chosen func(name string) bool) ([]packageFile, error)
	// owner names the package that brought one of paths; "" for none.
	owner(paths ...string) string
}

// index finds packages by name and by what they provide.
type index struct {
	byName    map[string][]*pkg
	providers map[string][]*pkg
	broken    []string // names of packages that are only partly installed
	native    string   // architecture of most packages
}

// parsePackages reads lines of a letter, a tab and a fact, as dpkgFormat and
// rpmFormat print them. Each package begins with its line "P".
func parsePackages(out string) (*index, error) {
	x := &index{byName: map[string][]*pkg{}, providers: map[string][]*pkg{}}
	var p *pkg
	arches := map[string]int{}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		for strings.HasPrefix(line, "(none)") { // rpm's mark of lists that the package before does not have
			line = strings.TrimPrefix(line, "(none)")
		}
		kind, fact, _ := strings.Cut(line, "\t")
		if kind == "P" {
			var err error
			if p, err = x.add(strings.Split(fact, "\t")); err != nil {
				return nil, err
			}
			arches[p.arch]++
			continue
		}
		if p == nil && line != "" || !p.fact(kind, fact) {
			return nil, fmt.Errorf("malformed line %.80q", line)
		}
	}
	for _, all := range x.byName {
		for _, p := range all {
			for _, name := range p.provides {
				x.providers[name] = append(x.providers[name], p)
			}
			if n := arches[p.arch] - arches[x.native]; !p.anyArch() && (n > 0 || n == 0 && p.arch < x.native) {
				x.native = p.arch
			}
		}
	}
	for _, all := range x.providers {
		slices.SortFunc(all, byName)
	}
	return x, nil
}

func byName(a, b *pkg) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.arch, b.arch)) }

func (p *pkg) anyArch() bool { return p.arch == "all" || p.arch == "noarch" }

// add takes the words of a line "P": name, architecture, and dpkg's state.
func (x *index) add(words []string) (*pkg, error) {
	if len(words) != 3 || !packageName.MatchString(words[0]) {
		return nil, fmt.Errorf("malformed package %.80q", words)
	}
	p := &pkg{name: words[0], arch: words[1], config: map[string]string{}}
	if p.arch == "(none)" { // rpm's keys, gpg-pubkey
		p.arch = "noarch"
	}
	switch words[2] {
	case "ok not-installed", "ok config-files":
	case "ok installed", "ok triggers-awaited", "ok triggers-pending":
		if !packageName.MatchString(p.arch) { // it becomes part of a file name
			return nil, fmt.Errorf("malformed package %.80q", words)
		}
		x.byName[p.name] = append(x.byName[p.name], p)
	default:
		x.broken = append(x.broken, p.name)
	}
	return p, nil
}

func (p *pkg) fact(kind, fact string) bool {
	switch kind {
	case "":
	case "r":
		p.depends = append(p.depends, parseGroups(fact)...)
	case "m":
		p.recommends = append(p.recommends, parseGroups(fact)...)
	case "p":
		p.provides = append(p.provides, slices.Concat(parseGroups(fact)...)...)
	case "f":
		return p.rpmFile(fact)
	default:
		return p.conffile(kind)
	}
	return true
}

// parseGroups reads "a (>= 1) | b:any, c", and what rpmFormat prints.
func parseGroups(s string) []anyOf {
	var groups []anyOf
	for group := range strings.SplitSeq(fromRPM(s), ",") {
		var alternatives anyOf
		for part := range strings.SplitSeq(group, "|") {
			if words := strings.Fields(part); len(words) > 0 {
				alternatives = append(alternatives, words[0])
			}
		}
		if len(alternatives) > 0 {
			groups = append(groups, alternatives)
		}
	}
	return groups
}

// find returns the package that a request calls NAME or NAME:ARCH: the one of
// the native architecture where several are installed.
func (x *index) find(name string) *pkg {
	name, arch, qualified := strings.Cut(name, ":")
	found := x.byName[name]
	if qualified {
		found = slices.DeleteFunc(slices.Clone(found), func(p *pkg) bool { return p.arch != arch && !p.anyArch() })
	}
	return nearest(found, x.native)
}

// nearest is the package that serves those of architecture arch best, or nil.
func nearest(found []*pkg, arch string) *pkg {
	if len(found) == 0 {
		return nil
	}
	return slices.MinFunc(found, func(a, b *pkg) int { return cmp.Compare(a.distance(arch), b.distance(arch)) })
}

func (p *pkg) distance(arch string) int {
	switch {
	case p.arch == arch:
		return 0
	case p.anyArch(), arch == "all", arch == "noarch":
		return 1
	}
	return 2
}

// satisfy returns the installed packages that meet one of the alternatives for
// p. Versions decide between those, so all of them are taken.
func (x *index) satisfy(alternatives anyOf, p *pkg) []*pkg {
	var all []*pkg
	for _, name := range alternatives {
		if !strings.Contains(name, "(") { // perl(Foo::Bar) of rpm
			name, _, _ = strings.Cut(name, ":")
		}
		if d := nearest(slices.Concat(x.byName[name], x.providers[name]), p.arch); d != nil {
			all = append(all, d)
		}
	}
	return all
}

// closure returns roots and all that they depend on, by name, and the
// dependencies that no installed package meets.
func (x *index) closure(roots []*pkg) (all []*pkg, unmet []string) {
	seen := map[*pkg]bool{}
	for queue := slices.Clone(roots); len(queue) > 0; {
		p := queue[0]
		queue = queue[1:]
		if seen[p] {
			continue
		}
		seen[p] = true
		all = append(all, p)
		for _, alternatives := range p.depends {
			found := x.satisfy(alternatives, p)
			if len(found) == 0 {
				unmet = append(unmet, p.name+" needs "+strings.Join(alternatives, " | "))
			}
			queue = append(queue, found...)
		}
	}
	slices.SortFunc(all, byName)
	return all, unmet
}

// requested finds the packages that a request names, and notes for each that it
// cannot find why.
func (x *index) requested(names []string, reasons *sbxerr.Reasons) (found []*pkg) {
	for _, n := range names {
		if p := x.find(n); p != nil {
			found = append(found, p)
		} else {
			reasons.Add(x.missing(n))
		}
	}
	return found
}

func (x *index) missing(name string) error {
	bare, _, _ := strings.Cut(name, ":")
	if slices.Contains(x.broken, bare) {
		return fmt.Errorf("package %q is only partly installed: finish with dpkg --configure", name)
	}
	var near []string
	for _, p := range x.providers[bare] {
		near = append(near, p.name)
	}
	if len(near) > 0 {
		return fmt.Errorf("package %q is virtual: name one that provides it: %s", name, strings.Join(slices.Compact(near), ", "))
	}
	if near = x.near(bare); len(near) > 0 {
		return fmt.Errorf("package %q is not installed: did you mean %s?", name, strings.Join(near, ", "))
	}
	return fmt.Errorf("package %q is not installed", name)
}

// near returns up to three installed names that look like name: the likely
// misspelling first, then the shortest names that contain it or are part of it.
func (x *index) near(name string) []string {
	all := slices.SortedFunc(maps.Keys(x.byName), func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
	found := []string{sbxerr.Nearest(name, all)}
	for _, n := range all {
		if n != found[0] && len(name) >= minContained && (strings.Contains(n, name) || len(n) > 2 && strings.Contains(name, n)) {
			found = append(found, n)
		}
	}
	if found[0] == "" {
		found = found[1:]
	}
	return found[:min(3, len(found))]
}

// minContained is the length from which a name that contains another one is
// worth a hint: shorter ones are part of too many.
const minContained = 6
