package apply

import (
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/runtime/changes"
)

// Control are patterns of names that decide what programs of the host do: they are applied only
// if that is asked for. A pattern is a path, to be found in any directory. * and ? stand for
// characters of one name, ** for any names, or none. Letters are compared without case, as some
// file systems do.
type Control []string

// Has reports whether c changes what controls programs: a control file, a repository's .git
// that is no directory, a link out of the tree, or a directory with such a file that comes or
// goes as a whole.
func (p Control) Has(c changes.Change) bool {
	if c.New.Type == symlink && leaves(c.Path, c.New.Link) {
		return true
	}
	whole := c.Kind == changes.Renamed || c.Old.Type == directory && c.New.Type != directory
	for _, name := range []string{c.Path, c.From} {
		if name == "" {
			continue
		}
		if strings.EqualFold(path.Base(name), ".git") && c.New.Type != directory && c.New.Type != "" {
			return true
		}
		parts := strings.Split(strings.ToLower(name), "/")
		for i := range parts {
			if slices.ContainsFunc(p, func(pattern string) bool { return meets(split(pattern), parts[i:], whole) }) {
				return true
			}
		}
	}
	return false
}

func split(pattern string) []string { return strings.Split(strings.ToLower(pattern), "/") }

// meets reports whether pattern is the name, or, for what comes or goes as a whole, may be below
// it.
func meets(pattern, name []string, whole bool) bool {
	if len(name) == 0 {
		return whole || len(pattern) == 0 || len(pattern) == 1 && pattern[0] == "**"
	}
	if len(pattern) == 0 {
		return false
	}
	if pattern[0] == "**" {
		return meets(pattern[1:], name, whole) || meets(pattern, name[1:], whole)
	}
	ok, err := path.Match(pattern[0], name[0])
	return ok && err == nil && meets(pattern[1:], name[1:], whole)
}

// leaves reports whether a link at name may lead out of the tree. After other links, ".." leads
// anywhere.
func leaves(name, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	up, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if up++; down {
				return true
			}
		default:
			down = true
		}
	}
	return up > strings.Count(name, "/")
}
