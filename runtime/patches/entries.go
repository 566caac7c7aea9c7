package patches

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/patch"
	"github.com/caisson-run/caisson/runtime/changes"
)

// Bounds of a patch. What lies beyond them is left out, and the result says so.
const (
	maxFiles   = 20_000
	maxNames   = 8 << 20 // bytes of names and targets
	maxEntries = 1 << 18 // of directories that are looked at
	maxDepth   = 256
)

const directory = "directory" // a type

var errBound = errors.New("there are more files than a patch has")

// lister lists the files of changes. A directory that was deleted or renamed stands for the files
// in it.
type lister struct {
	ctx     context.Context           //nolint:containedctx // of the call
	lower   int                       // root of the layer
	moved   map[string]bool           // what was renamed, of the lower layer
	changed map[string]changes.Change // by name
	seen    int                       // entries
	kept    int                       // bytes of names
	files   []patch.File
	left    []Note
	noted   map[string]bool
}

// Note is a name that a patch leaves out.
type Note struct{ Path, Reason string }

func newLister(ctx context.Context, lower *os.File, list []changes.Change) *lister {
	l := &lister{ctx: ctx, lower: int(lower.Fd()), moved: map[string]bool{}, changed: map[string]changes.Change{}, noted: map[string]bool{}}
	for _, c := range list {
		l.changed[c.Path] = c
		if c.Kind == changes.Renamed {
			l.moved[c.From] = true
		}
	}
	return l
}

// add adds the files of a change.
func (l *lister) add(c changes.Change) error {
	if c.Kind == changes.Renamed {
		return errors.Join(l.delete(c.Place, 0), l.rename(c.From, c.Path, 0))
	}
	was, is := c.Old, c.New
	if was.Type == directory && is.Type == directory {
		return nil
	}
	if was.Type == directory {
		if err := l.delete(c.Place, 0); err != nil {
			return err
		}
		was = changes.State{}
	}
	before, after := l.side(c.Place, was), l.side(c.Path, is)
	if before != nil && after != nil && (before.Mode == patch.ModeLink) != (after.Mode == patch.ModeLink) {
		return errors.Join(l.put(patch.File{Old: before}), l.put(patch.File{New: after}))
	}
	return l.put(patch.File{Old: before, New: after})
}

// side is a file as a patch has it; nil is none.
func (l *lister) side(name string, s changes.State) *patch.Side {
	side := &patch.Side{Name: []byte(name), Mode: patch.ModeFile}
	switch {
	case s.Type == "symlink":
		side.Mode, side.Link = patch.ModeLink, []byte(s.Link)
	case s.Type == "file" && s.Mode&0o100 != 0:
		side.Mode = patch.ModeProgram
	case s.Type == "file":
	case s.Type == directory, s.Type == "":
		return nil
	default:
		l.leave(name, "a patch has no "+s.Type)
		return nil
	}
	return side
}

func (l *lister) put(f patch.File) error {
	if f.Old == nil && f.New == nil {
		return nil
	}
	for _, s := range []*patch.Side{f.Old, f.New} {
		if s == nil {
			continue
		}
		if dir := gitDir(string(s.Name)); dir != "" {
			l.leave(dir, "git takes no patch of its own directory")
			return nil
		}
		l.kept += len(s.Name) + len(s.Link)
	}
	if len(l.files) == maxFiles || l.kept > maxNames {
		return errBound
	}
	l.files = append(l.files, f)
	return nil
}

// gitDir is the directory of git's own that name is or is in; empty: none.
func gitDir(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if strings.EqualFold(part, ".git") {
			return path.Join(parts[:i+1]...)
		}
	}
	return ""
}

func (l *lister) leave(name, reason string) {
	if !l.noted[name] && len(l.left) < maxFiles {
		l.noted[name] = true
		l.left = append(l.left, Note{name, reason})
	}
}

// delete adds what the lower layer has under a name, as deleted.
func (l *lister) delete(name string, depth int) error {
	if name == "" || l.moved[name] {
		return nil
	}
	s := l.stateAt(name)
	if s.Type == directory {
		return l.each(name, depth, func(entry string) error { return l.delete(path.Join(name, entry), depth+1) })
	}
	return l.put(patch.File{Old: l.side(name, s)})
}

// rename adds what the lower layer has in a directory, under another name, but for what has a
// change of its own.
func (l *lister) rename(from, to string, depth int) error {
	return l.each(from, depth, func(entry string) error {
		old, name := path.Join(from, entry), path.Join(to, entry)
		c, changed := l.changed[name]
		if merges := c.Kind == changes.Modified && c.Old.Type == directory && c.New.Type == directory; l.moved[old] || changed && !merges {
			return nil
		}
		s := l.stateAt(old)
		if s.Type == directory {
			return l.rename(old, name, depth+1)
		}
		before, after := l.side(old, s), l.side(name, s)
		return l.put(patch.File{Old: before, New: after, Same: true})
	})
}

// each calls do with the names in a directory of the lower layer.
func (l *lister) each(name string, depth int, do func(entry string) error) error {
	if depth == maxDepth {
		return errBound
	}
	fd, err := changes.OpenBeneath(l.lower, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		l.leave(name, patch.Unreadable.String())
		return nil
	}
	dir := os.NewFile(uintptr(fd), name)
	names, err := l.names(dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, entry := range names {
		if err := do(entry); err != nil {
			return err
		}
	}
	return nil
}

// names reads a directory, sorted.
func (l *lister) names(dir *os.File) (names []string, err error) {
	for {
		if err := l.ctx.Err(); err != nil {
			return nil, context.Cause(l.ctx)
		}
		some, err := dir.Readdirnames(1024)
		names = append(names, some...)
		if l.seen += len(some); l.seen > maxEntries {
			return nil, errBound
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// stateAt is what the lower layer has under a name.
func (l *lister) stateAt(name string) (s changes.State) {
	fd, err := changes.OpenBeneath(l.lower, name, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return s
	}
	var st unix.Stat_t
	if err == nil {
		defer unix.Close(fd)
		err = unix.Fstat(fd, &st)
	}
	if err == nil {
		s = changes.State{Type: changes.TypeOf(st.Mode), Mode: st.Mode & 0o7777, Size: st.Size}
		if s.Type == "symlink" {
			s.Link, err = linkOf(fd)
		}
	}
	if err != nil {
		l.leave(name, patch.Unreadable.String())
		return changes.State{}
	}
	return s
}

func linkOf(fd int) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	return string(target[:max(n, 0)]), err
}
