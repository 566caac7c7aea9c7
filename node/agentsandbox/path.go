package agentsandbox

import (
	"context"
	"errors"
	"path"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

var (
	errOutside = errors.New("the path leads out of the base directory")
	errLinks   = errors.New("the path has too many symbolic links")
)

// mostLinks is how many symbolic links a path may lead through, as in Linux.
const mostLinks = 40

// place is a path of a client inside the sandbox, with every symbolic link followed.
type place struct {
	path string
	info *caissonv1.FileInfo // nil: nothing is there
}

// resolve finds the place of a client's path, which always begins at the base directory. A path
// that leads out of it is errOutside: by "..", or by a symbolic link. What changes in the sandbox
// meanwhile is not seen, which gives nobody anything: the same client may run commands.
func (r *runtime) resolve(ctx context.Context, name string) (place, error) {
	full := path.Join(r.Dir, name)
	if !r.holds(full) {
		return place{}, errOutside
	}
	p, err := r.follow(ctx, strings.TrimPrefix(full, r.Dir))
	if err == nil && !r.holds(p.path) {
		err = errOutside
	}
	return p, err
}

func (r *runtime) holds(full string) bool {
	return full == r.Dir || strings.HasPrefix(full, strings.TrimSuffix(r.Dir, "/")+"/")
}

func (r *runtime) follow(ctx context.Context, name string) (place, error) {
	at, rest, links := place{path: r.Dir}, strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		next := path.Join(at.path, part)
		if part == "" || part == "." || part == ".." {
			at = place{path: next}
			continue
		}
		info, err := r.stat(ctx, next)
		switch {
		case errors.Is(err, sbxerr.FileAbsent):
			return place{path: path.Join(append([]string{next}, rest...)...)}, nil
		case err != nil:
			return place{}, err
		case info.Type != "symlink":
			at = place{path: next, info: info}
			continue
		}
		if links++; links > mostLinks {
			return place{}, errLinks
		}
		if path.IsAbs(info.Link) {
			at.path = "/"
		}
		rest = append(strings.Split(info.Link, "/"), rest...)
	}
	if at.info != nil {
		return at, nil
	}
	info, err := r.stat(ctx, at.path) // the base directory, or one that ".." came to
	if errors.Is(err, sbxerr.FileAbsent) {
		return at, nil
	}
	return place{path: at.path, info: info}, err
}

func (r *runtime) stat(ctx context.Context, full string) (*caissonv1.FileInfo, error) {
	return r.caisson.Stat(ctx, &caissonv1.StatRequest{Ref: r.ID, Path: full})
}

// entry is one of a directory, in the words that both protocols know.
type entry struct {
	name, kind string
	*caissonv1.FileInfo
}

var errTooMany = errors.New("the directory has more entries than one answer holds: list it by a command")

// list returns the entries of a directory. Symbolic links are what they lead to, and left out where
// that is nothing.
func (r *runtime) list(ctx context.Context, full string) ([]entry, error) {
	l, err := r.caisson.ListDir(ctx, &caissonv1.ListDirRequest{Ref: r.ID, Path: full})
	if err != nil {
		return nil, err
	}
	if l.Truncated {
		return nil, errTooMany
	}
	entries := make([]entry, 0, len(l.Files))
	for _, f := range l.Files {
		e := entry{name: path.Base(f.Path), kind: "file", FileInfo: f}
		if f.Type == "symlink" {
			e.FileInfo, err = r.caisson.Stat(ctx, &caissonv1.StatRequest{Ref: r.ID, Path: path.Join(full, e.name), Follow: true})
			if ctx.Err() != nil {
				return nil, err
			}
			if err != nil {
				continue
			}
		}
		if e.Type == "directory" {
			e.kind = "directory"
		}
		entries = append(entries, e)
	}
	return entries, nil
}
