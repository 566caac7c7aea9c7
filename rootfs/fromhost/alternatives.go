package fromhost

import (
	"path"
	"strings"
)

// alternativesDir holds the links that update-alternatives(1) switches. They
// and the public names that lead to them are made by scripts of packages, so
// no package lists them.
const alternativesDir = "/etc/alternatives"

// alternativesAdmin are where update-alternatives keeps its own notes: Debian
// and Red Hat write the same format.
var alternativesAdmin = []string{"/var/lib/dpkg/alternatives", "/var/lib/alternatives"}

// alternative is one switched link: /usr/bin/awk for awk.
type alternative struct {
	name string // in alternativesDir
	link string // the public name
}

// parseAlternative reads the notes on the group called name: the mode, the
// public link, pairs of name and link for those that follow it, and after an
// empty line the candidates, which the links themselves tell better.
func parseAlternative(name string, data []byte) []alternative {
	lines := strings.Split(string(data), "\n")
	if len(lines) < 2 || lines[0] != "auto" && lines[0] != "manual" {
		return nil
	}
	group := []alternative{{name: name, link: lines[1]}}
	for rest := lines[2:]; len(rest) > 1 && rest[0] != ""; rest = rest[2:] {
		group = append(group, alternative{name: rest[0], link: rest[1]})
	}
	var valid []alternative
	for _, a := range group {
		if path.IsAbs(a.link) && a.name != "" && !strings.Contains(a.name, "/") && a.name != ".." && a.name != "." {
			a.link = path.Clean(a.link)
			valid = append(valid, a)
		}
	}
	return valid
}

// alternatives adds the switched links whose present choice is collected.
func (c *collector) alternatives() error {
	for _, dir := range alternativesAdmin {
		names, err := c.tree.names(dir, maxNames)
		if skippable(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, n := range names {
			data, err := c.tree.readFile(path.Join(dir, n), 1<<20)
			if err != nil {
				continue // not for us to read, or no file
			}
			for _, a := range parseAlternative(n, data) {
				if err := c.alternative(a); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *collector) alternative(a alternative) error {
	if isDocumentation(a.link) {
		return nil
	}
	r, err := c.tree.resolve(path.Join(alternativesDir, a.name))
	if err != nil || c.set[r.path] == nil {
		return nil // no choice, or one that is not part of the image
	}
	public, err := c.tree.place(a.link)
	if err != nil || !public.info.isSymlink() {
		return nil
	}
	return c.chain(a.link, origin{why: "alternative " + a.name})
}
