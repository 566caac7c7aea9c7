package fromhost

import (
	"io/fs"
	"os"
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

// alternatives adds the switched links whose present choice is collected.
func (c *collector) alternatives() {
	for _, dir := range alternativesAdmin {
		groups, _ := os.ReadDir(c.real(dir)) // absent, or not for us to read
		for _, g := range groups {
			data, err := os.ReadFile(c.real(path.Join(dir, g.Name())))
			if err != nil {
				continue
			}
			// The mode, the public link, and pairs of name and link for those that follow
			// it. After an empty line come the candidates.
			head, _, _ := strings.Cut(string(data), "\n\n")
			lines := strings.Split(head, "\n")
			lines[0] = g.Name()
			for ; len(lines) > 1; lines = lines[2:] {
				c.alternative(lines[0], lines[1])
			}
		}
	}
}

func (c *collector) alternative(name, link string) {
	if !path.IsAbs(link) || strings.Contains(name, "/") || isDocumentation(link) {
		return
	}
	r, err := c.resolve(path.Join(alternativesDir, name))
	if err != nil || c.set[r.path] == nil {
		return // no choice, or one that is not part of the image
	}
	if public, err := c.place(path.Clean(link)); err == nil && public.info.Mode().Type() == fs.ModeSymlink {
		c.chain(link, origin{})
	}
}
