package fromhost

import (
	"path"
	"slices"
)

// maxLinks is how many symbolic links one path may lead through, as of the
// kernel (path_resolution(7)).
const maxLinks = 40

// resolved is where a path leads.
type resolved struct {
	path  string   // without symbolic links
	links []string // those that were followed, in order, each without links in its directory
	info  info
}

// resolve follows the symbolic links of p below the root: an absolute link and
// ".." stay inside it. It costs no system call for a directory it has seen.
func (t *tree) resolve(p string) (resolved, error) { return t.follow(p, 0) }

// place resolves the directory of p but not p itself: the result is where p is
// found, whatever it is.
func (t *tree) place(p string) (resolved, error) {
	p = path.Clean(p)
	dir, err := t.directory(path.Dir(p), 0)
	if err != nil {
		return resolved{}, err
	}
	at := path.Join(dir.path, path.Base(p))
	i, err := t.lstat(at)
	return resolved{path: at, links: dir.links, info: i}, err
}

func (t *tree) follow(p string, hops int) (resolved, error) {
	// No path.Clean here: "a/.." is only the parent if a is no link.
	dirPart, base := path.Split(trimSlashes(p))
	if base == "" {
		return resolved{path: "/", info: rootInfo}, nil
	}
	dir, err := t.directory(dirPart, hops)
	if err != nil {
		return resolved{}, err
	}
	switch base {
	case ".":
		return dir, nil
	case "..":
		up, err := t.directory(path.Dir(dir.path), hops)
		return resolved{path: up.path, links: dir.links, info: up.info}, err
	}
	at := path.Join(dir.path, base)
	i, err := t.lstat(at)
	if err != nil {
		return resolved{}, err
	}
	if !i.isSymlink() {
		return resolved{path: at, links: dir.links, info: i}, nil
	}
	return t.followLink(at, dir, hops)
}

func (t *tree) followLink(at string, dir resolved, hops int) (resolved, error) {
	if hops >= maxLinks {
		return resolved{}, errLoop
	}
	target, err := t.readlink(at)
	if err != nil {
		return resolved{}, err
	}
	if !path.IsAbs(target) {
		target = dir.path + "/" + target
	}
	r, err := t.follow(target, hops+1)
	if err != nil {
		return resolved{}, err
	}
	// The sum counts, not the depth: links that each hold two links double the
	// length with each level.
	if len(dir.links)+1+len(r.links) > maxLinks {
		return resolved{}, errLoop
	}
	r.links = slices.Concat(dir.links, []string{at}, r.links)
	return r, nil
}

// directory is follow for a path that must be a directory, and remembers.
func (t *tree) directory(p string, hops int) (resolved, error) {
	key := trimSlashes(p)
	if r, ok := t.dirs[key]; ok {
		return r, nil
	}
	r, err := t.follow(key, hops)
	if err != nil {
		return resolved{}, err
	}
	if !r.info.isDir() {
		return resolved{}, errAbsent
	}
	t.dirs[key] = r
	return r, nil
}

func trimSlashes(p string) string {
	for len(p) > 1 && p[len(p)-1] == '/' {
		p = p[:len(p)-1]
	}
	if p == "" {
		return "/"
	}
	return p
}
