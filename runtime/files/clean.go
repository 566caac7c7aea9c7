package files

import (
	"archive/tar"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// maxTime is the latest time that a plain tar header can hold, in the year 2242.
const maxTime = 1<<33 - 1

// tree checks the entries of a copy out, which must come in the order of a walk:
// a directory, then what is in it by name. So no name comes twice, and all that
// is above an entry is a directory and no symlink.
type tree struct {
	started bool
	dirs    []level
}

type level struct {
	path string // below the copied entry
	last string // the name that came last in it
	skip bool   // it is left out, with all that is in it
}

// place checks where i comes, and reports whether it is to be left out.
func (t *tree) place(i wire.Info) (skip bool, err error) {
	if !t.started {
		t.started = true
		return false, t.top(i)
	}
	if err := checkBelow(i.Path); err != nil {
		return false, err
	}
	dir, name := split(i.Path)
	for len(t.dirs) > 0 && t.dirs[len(t.dirs)-1].path != dir {
		t.dirs = t.dirs[:len(t.dirs)-1]
	}
	if len(t.dirs) == 0 {
		return false, broken(fmt.Errorf("it sends %q out of order", sbxerr.Clip(i.Path)))
	}
	parent := &t.dirs[len(t.dirs)-1]
	if name <= parent.last {
		return false, broken(fmt.Errorf("it sends %q after %q", sbxerr.Clip(i.Path), sbxerr.Clip(parent.last)))
	}
	parent.last = name
	skip = parent.skip || !plainName(name) || !copied(i, len(t.dirs)-1)
	if i.Type == wire.TypeDir {
		t.dirs = append(t.dirs, level{path: i.Path, skip: skip})
	}
	return skip, nil
}

// top checks the entry that was asked for. Symlinks to it were followed inside.
func (t *tree) top(i wire.Info) error {
	if i.Path != "" || i.Type == wire.TypeSymlink {
		return broken(fmt.Errorf("it starts with the %s %q", i.Type, sbxerr.Clip(i.Path)))
	}
	if i.Type == wire.TypeDir {
		t.dirs = append(t.dirs, level{})
	}
	return nil
}

func split(p string) (dir, name string) {
	i := strings.LastIndexByte(p, '/')
	return p[:max(i, 0)], p[i+1:]
}

// plainName holds for a name that a terminal and any tool can take.
func plainName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// copied reports whether an entry, so many directories below the top, may be
// unpacked on a host.
func copied(i wire.Info, depth int) bool {
	switch i.Type {
	case wire.TypeFile, wire.TypeDir:
		return true
	case wire.TypeSymlink:
		return staysIn(i.Link, depth)
	}
	return false
}

// staysIn holds for a target that cannot lead out of the tree whose top is so
// many real directories above the symlink: relative, and climbing only at its
// start, where each step is a real directory. Further on, ".." would be applied
// to what other symlinks lead to.
func staysIn(target string, depth int) bool {
	if !plainName(target) || target == "" || target[0] == '/' {
		return false
	}
	climbing := true
	for element := range strings.SplitSeq(target, "/") {
		switch {
		case element != "..":
			climbing = climbing && (element == "." || element == "")
		case !climbing || depth == 0:
			return false
		default:
			depth--
		}
	}
	return true
}

// headerOf is the entry in the archive that goes out, under base: no owner, no
// set-id bits, nothing of the sandbox's but names, permissions, sizes and times.
func headerOf(i wire.Info, base string) *tar.Header {
	h := &tar.Header{
		Name: path.Join(base, i.Path), Mode: int64(i.Mode & 0o777),
		ModTime: time.Unix(min(max(i.Mtime, 0), maxTime), 0),
	}
	switch i.Type {
	case wire.TypeDir:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case wire.TypeSymlink:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, i.Link, 0o777
	default:
		h.Typeflag, h.Size = tar.TypeReg, i.Size
	}
	return h
}

// baseOf is the name in the archive of what is at p: its last element, or "."
// where that names a place and not an entry.
func baseOf(p string) string {
	last := p[strings.LastIndexByte(strings.TrimRight(p, "/"), '/')+1:]
	switch name := strings.TrimRight(last, "/"); name {
	case "", ".", "..":
		return "."
	default:
		return name
	}
}
