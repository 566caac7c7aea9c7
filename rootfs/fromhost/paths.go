package fromhost

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links one path may lead through, as of the
// kernel (path_resolution(7)).
const maxLinks = 40

// host reads below the directory root. Paths are absolute.
type host struct {
	root string              // "" for the root of this process
	dirs map[string]resolved // by path
}

// resolved is where a path leads.
type resolved struct {
	path  string   // without symbolic links
	links []string // those that were followed, in order, each without links in its directory
	info  fs.FileInfo
}

// real is the name of p, a path without links, for the kernel.
func (h *host) real(p string) string { return h.root + p }

func (h *host) lstat(p string) (fs.FileInfo, error) { return os.Lstat(h.real(p)) }

// resolve follows the symbolic links of p below the root: an absolute link and
// ".." stay inside it.
func (h *host) resolve(p string) (resolved, error) {
	if p != path.Clean(p) {
		return h.walk(p) // "a/.." is the parent only if a is no link
	}
	r, err := h.place(p)
	if err != nil || r.info.Mode().Type() != fs.ModeSymlink {
		return r, err
	}
	return h.walk(p)
}

// place resolves the directory of p but not p itself: the result is where p is
// found, whatever it is.
func (h *host) place(p string) (resolved, error) {
	dir, err := h.directory(path.Dir(p))
	if err != nil {
		return resolved{}, err
	}
	at := path.Join(dir.path, path.Base(p))
	i, err := h.lstat(at)
	return resolved{path: at, links: dir.links, info: i}, err
}

// directory is walk for a path that must be a directory, and remembers.
func (h *host) directory(p string) (resolved, error) {
	if r, ok := h.dirs[p]; ok {
		return r, nil
	}
	r, err := h.walk(p)
	if err == nil && !r.info.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		h.dirs[p] = r
	}
	return r, err
}

func (h *host) walk(p string) (resolved, error) {
	top, err := h.lstat("/")
	r := resolved{path: "/", info: top}
	for rest := split(p); err == nil && len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if !r.info.IsDir() {
			return r, unix.ENOTDIR
		}
		at := path.Join(r.path, name) // name may be ".." or "."
		i, err := h.lstat(at)
		if err != nil {
			return r, err
		}
		if i.Mode().Type() != fs.ModeSymlink {
			r.path, r.info = at, i
			continue
		}
		text, err := os.Readlink(h.real(at))
		if err != nil {
			return r, err
		}
		if r.links = append(r.links, at); len(r.links) > maxLinks {
			return r, unix.ELOOP
		}
		if path.IsAbs(text) {
			r.path, r.info = "/", top
		}
		rest = slices.Concat(split(text), rest)
	}
	r.links = slices.Clip(r.links)
	return r, err
}

func split(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}
