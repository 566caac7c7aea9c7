package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of a walk. What lies beyond them is left out, and the result says so.
const (
	maxDepth   = 256
	maxEntries = 1 << 18 // that are looked at
	maxText    = 8 << 20 // bytes of names and targets that are kept at a time, of each kind
	maxWalks   = 2       // at a time
	batch      = 1024
)

// maxListed bounds what At returns.
const maxListed = 20_000

// At is Of for the layers in two directories of the daemon's.
func At(ctx context.Context, upper, lower string, o Options) (list []Change, more bool, err error) {
	layers, err := Open(upper, lower)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, layers.Close()) }()
	return Of(ctx, layers, o)
}

// Layers are the roots of the layers, open directories.
type Layers struct{ Upper, Lower *os.File }

// Open opens the layers in two directories of the daemon's.
func Open(upper, lower string) (l Layers, err error) {
	if l.Upper, err = openLayer(upper); err != nil {
		return l, err
	}
	if l.Lower, err = openLayer(lower); err != nil {
		return l, errors.Join(err, l.Upper.Close())
	}
	return l, nil
}

// Close closes both layers.
func (l Layers) Close() error { return errors.Join(l.Upper.Close(), l.Lower.Close()) }

func openLayer(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// Options say which differences are listed.
type Options struct {
	Most    int      // 0 is 20,000
	Only    []string // names at or below which the differences are; none is all. Renamed directories are listed always.
	Applied Applied  // what the host has from an earlier apply, which is no difference
}

// Of returns the differences, sorted by name, and whether there are more. It ends with ctx.
func Of(ctx context.Context, l Layers, o Options) (list []Change, more bool, err error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	w, err := compare(ctx, l, o, nil)
	if moved := w.moved(); err == nil && len(moved) > 0 { // what is under the old names is known only now
		w, err = compare(ctx, l, o, moved)
	}
	return w.list, w.more, err
}

func compare(ctx context.Context, l Layers, o Options, moved map[string]bool) (walk, error) {
	w := walk{Options: o, ctx: ctx, root: int(l.Lower.Fd()), away: moved}
	if w.Most == 0 {
		w.Most = maxListed
	}
	dir, err := openDir(int(l.Upper.Fd()), ".")
	if err == nil {
		err = w.dir(level{upper: dir, lower: w.root})
	}
	if errors.Is(err, errBound) {
		w.more, err = true, nil
	}
	if err != nil {
		return w, fmt.Errorf("compare the layers: %w", err)
	}
	slices.SortStableFunc(w.list, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return w, nil
}

// moved are the old names of what was renamed.
func (w *walk) moved() map[string]bool {
	moved := map[string]bool{}
	for _, c := range w.list {
		if c.Kind == Renamed {
			moved[c.From] = true
		}
	}
	return moved
}

// wants reports whether c is listed. A new directory is, where something in it may be.
func (w *walk) wants(c Change) bool {
	if len(w.Only) == 0 || c.Kind == Renamed {
		return true
	}
	made := c.New.Type == directory && c.Old.Type != "directory"
	return slices.ContainsFunc(w.Only, func(only string) bool { return Within(c.Path, only) || made && Within(only, c.Path) })
}

// Within reports whether name is root or below it.
func Within(name, root string) bool {
	return name == root || root == "." || strings.HasPrefix(name, root) && name[len(root)] == '/'
}

// slots bound the memory of all walks together.
var slots = make(chan struct{}, maxWalks)

var errBound = errors.New("there are more changes than can be told")

type walk struct {
	Options
	ctx  context.Context
	root int             // of the lower layer
	away map[string]bool // names of the lower layer that were renamed
	seen int             // entries
	read int             // bytes of their names
	kept int             // bytes of names and targets in list
	list []Change
	more bool
}

// level is a directory of the upper layer and what it hides or merges with.
type level struct {
	upper     *os.File // it is closed when the walk leaves it
	lower     int      // O_PATH; -1: there is nothing
	hidden    int      // O_PATH; a directory whose content is gone; 0: there is none
	path      string
	lowerPath string // of lower, or of hidden
	depth     int
}

// dir compares one directory with what is below it.
func (w *walk) dir(l level) (err error) {
	defer func() { err = errors.Join(err, l.upper.Close()) }()
	names, err := w.names(l.upper)
	if err != nil {
		return err
	}
	if l.hidden > 0 {
		if err := w.gone(l, names); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := w.entry(l, name); err != nil {
			return err
		}
	}
	return nil
}

// names reads a directory, sorted.
func (w *walk) names(dir *os.File) (names []string, err error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return nil, context.Cause(w.ctx)
		}
		some, err := dir.Readdirnames(batch)
		names = append(names, some...)
		for _, name := range some {
			w.read += len(name)
		}
		if w.seen += len(some); w.seen > maxEntries || w.read > maxText {
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

// gone lists what a directory of the lower layer had that another one replaced.
func (w *walk) gone(l level, names []string) error {
	dir, err := openDir(l.hidden, ".")
	if err != nil {
		return err
	}
	had, err := w.names(dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, name := range had {
		if _, kept := slices.BinarySearch(names, name); kept {
			continue
		}
		c := w.under(l, name)
		if c.Old.Type == "" || w.Applied.foreign(c.Path) {
			continue
		}
		c.Kind = Deleted
		if err := w.add(c); err != nil {
			return err
		}
	}
	return nil
}

// stateAt is what dir has under name, nothing where it has a whiteout.
func stateAt(dir int, name string) State {
	var st unix.Stat_t
	if dir < 0 || unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || isWhiteout(&st) {
		return State{}
	}
	s := stateOf(&st)
	if s.Type == "symlink" {
		s.Link = linkAt(dir, name)
	}
	return s
}

func linkAt(dir int, name string) string {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, target)
	if err != nil {
		return ""
	}
	return string(target[:n])
}

// under returns a change of name in l with what the lower layer has there.
func (w *walk) under(l level, name string) Change {
	c := Change{Path: path.Join(l.path, name)}
	below := l.lower
	if l.hidden > 0 {
		below = l.hidden
	}
	if below < 0 {
		return c
	}
	c.Place = path.Join(l.lowerPath, name)
	if !w.away[c.Place] {
		c.Old = stateAt(below, name)
	}
	return c
}

func (w *walk) add(c Change) error {
	if !w.wants(c) {
		return nil
	}
	w.kept += len(c.Path) + len(c.From) + len(c.Place) + len(c.Old.Link) + len(c.New.Link)
	if len(w.list) >= w.Most || w.kept > maxText {
		return errBound
	}
	w.list = append(w.list, c)
	return nil
}

func (w *walk) entry(l level, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(l.upper.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) { // it was removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	c := w.under(l, name)
	switch {
	case isWhiteout(&st):
		if c.Old.Type == "" {
			return nil
		}
		c.Kind = Deleted
		return w.add(c)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		c.New = stateOf(&st)
		return w.subdir(l, name, c)
	}
	if c.New = stateAt(int(l.upper.Fd()), name); c.New.Type == "" { // it became a whiteout
		return nil
	}
	if w.Applied.same(c.Path, &st) || c.New.Type == "symlink" && c.New == c.Old {
		return nil
	}
	c.Kind = kindOf(c)
	return w.add(c)
}

func kindOf(c Change) Kind {
	if c.Old.Type == "" {
		return Added
	}
	return Modified
}

// subdir compares a directory of the upper layer with the one that it merges with. One of the
// lower layer that it replaces has content that is gone.
func (w *walk) subdir(l level, name string, c Change) error {
	if l.depth+1 >= maxDepth || len(c.Path) >= unix.PathMax {
		w.more = true
		return nil
	}
	dir, err := openDir(int(l.upper.Fd()), name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) { // it was replaced meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	next := level{upper: dir, lower: -1, path: c.Path, lowerPath: c.Place, depth: l.depth + 1}
	release, err := w.merge(&next, l, name, &c)
	if err == nil && (c.Kind == Renamed || c.Old.Type != directory || c.Old.Mode != c.New.Mode) {
		if c.Kind == "" {
			c.Kind = kindOf(c)
		}
		err = w.add(c)
	}
	if err != nil {
		return errors.Join(err, release(), dir.Close())
	}
	return errors.Join(w.dir(next), release())
}

// merge finds the directory of the lower layer that next, an entry of l, shows or replaces.
func (w *walk) merge(next *level, l level, name string, c *Change) (release func() error, err error) {
	fd := int(next.upper.Fd())
	if to := attribute(fd, "redirect"); to != "" {
		if w.Applied.made(c.Path) {
			return w.mergeAt(next, c, c.Path)
		}
		from := strings.TrimPrefix(to, "/")
		if from == to {
			from = path.Join(l.lowerPath, to)
		}
		if l.lower >= 0 && l.hidden == 0 && from == path.Join(l.lowerPath, name) { // it was renamed back
			return w.mergeSame(next, l, name, c)
		}
		c.Kind, c.From = Renamed, from
		return w.mergeAt(next, c, from)
	}
	return w.mergeSame(next, l, name, c)
}

// mergeAt is merge with a directory of another name.
func (w *walk) mergeAt(next *level, c *Change, from string) (release func() error, err error) {
	old, err := OpenBeneath(w.root, from, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil { // the host removed it meanwhile
		c.Kind, c.From, c.Old, c.Lost = "", "", State{}, true
		return func() error { return nil }, nil
	}
	next.lower, next.lowerPath = old, from
	var st unix.Stat_t
	err = unix.Fstat(old, &st)
	c.Old = stateOf(&st)
	return func() error { return unix.Close(old) }, err
}

// mergeSame is merge with the directory of the same name.
func (w *walk) mergeSame(next *level, l level, name string, c *Change) (release func() error, err error) {
	release = func() error { return nil }
	fd := int(next.upper.Fd())
	below := l.lower
	if l.hidden > 0 {
		below = l.hidden
	}
	if c.Old.Type != directory {
		c.Lost = c.Old.Type == "" && has(fd, "origin")
		return release, nil
	}
	old, err := unix.Openat(below, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil { // the host removed it meanwhile
		return release, nil
	}
	if l.hidden > 0 || attribute(fd, "opaque") == "y" {
		next.hidden = old
	} else {
		next.lower = old
	}
	return func() error { return unix.Close(old) }, nil
}

// attribute is what overlayfs notes of a directory.
func attribute(fd int, name string) string {
	value := make([]byte, unix.PathMax)
	n, err := unix.Fgetxattr(fd, "trusted.overlay."+name, value)
	if err != nil {
		return ""
	}
	return string(value[:n])
}

func has(fd int, name string) bool {
	_, err := unix.Fgetxattr(fd, "trusted.overlay."+name, nil)
	return err == nil
}

// openDir opens a directory of dir to read it. It follows no link.
func openDir(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
