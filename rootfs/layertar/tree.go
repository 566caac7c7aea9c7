package layertar

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// node is what a name of a tree leads to.
type node struct {
	absent bool
	mode   fs.FileMode
	link   string // target of a symbolic link
}

func (n node) isDir() bool  { return !n.absent && n.mode.IsDir() }
func (n node) isLink() bool { return !n.absent && n.mode&fs.ModeSymlink != 0 }

// lookup returns the node of a name below a root. No component before the last is a link.
type lookup func(name string) (node, error)

// lookupIn looks names up in root.
func lookupIn(root *os.Root) lookup {
	return func(name string) (node, error) {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return node{absent: true}, nil
		}
		if err != nil {
			return node{}, err
		}
		n := node{mode: info.Mode()}
		if n.isLink() {
			n.link, err = root.Readlink(name)
		}
		return n, err
	}
}

// maxLinks is the kernel's bound on links in one path (path_resolution(7)).
const maxLinks = 40

// follow returns the name below the root to which a path leads, through all links, and the
// node there. Links lead on inside the root only.
func follow(at lookup, name string) (string, node, error) {
	dir, rest, links := ".", strings.Split(name, "/"), 0
	last := node{mode: fs.ModeDir}
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			dir, last = path.Dir(dir), node{mode: fs.ModeDir}
			continue
		}
		if !last.isDir() && !last.absent {
			return "", node{}, refuse("%q leads through the file %q", name, "/"+dir)
		}
		next := path.Join(dir, part)
		n, err := node{absent: true}, error(nil)
		if !last.absent {
			n, err = at(next)
		}
		if err != nil {
			return "", node{}, refuse("find %q: %w", name, err)
		}
		if !n.isLink() {
			dir, last = next, n
			continue
		}
		if links++; links > maxLinks {
			return "", node{}, refuse("%q leads through more than %d links", name, maxLinks)
		}
		if path.IsAbs(n.link) {
			dir = "."
		}
		rest = append(strings.Split(n.link, "/"), rest...)
	}
	return dir, last, nil
}

func refuse(format string, args ...any) error {
	return sbxerr.New(sbxerr.Config, "layertar.copy", format, args...)
}

// list returns the names in a directory, sorted. fs.FS would refuse names that are not UTF-8.
func list(root *os.Root, dir string) ([]fs.DirEntry, error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, f.Close())
}

// Walk calls visit for all that dir holds, and below, parents first. visit may return
// fs.SkipDir for a directory.
func Walk(root *os.Root, dir string, visit func(name string, entry fs.DirEntry) error) error {
	entries, err := list(root, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		err := visit(name, e)
		if err == nil && e.IsDir() {
			err = Walk(root, name, visit)
		}
		if err != nil && !errors.Is(err, fs.SkipDir) {
			return err
		}
	}
	return nil
}

// Find returns the name in a tree to which a path leads, through all links, and whether
// there is something. What is missing of the path are the last names of it.
func Find(root *os.Root, name string) (at string, missing []string, err error) {
	at, n, err := follow(lookupIn(root), name)
	for dir := at; err == nil && n.absent; {
		missing = append(missing, dir)
		dir = path.Dir(dir)
		n, err = lookupIn(root)(dir)
	}
	return at, missing, err
}
