package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
)

// Bounds of a look at directories that are gone: the entries of all together, and their depth.
const (
	maxEntries = 1 << 18
	maxDepth   = 128
)

// found is a change with what the layers have.
type found struct {
	changes.Change
	upper node
	lower node // under Place
	from  node // of what was renamed
	lost  bool // what it was made of is gone from the lower layer, or changed there
	fresh bool // in a directory that it replaces or deletes, there is a file that changed since
	above []above
}

// above is a directory of the lower layer in which something is to be done.
type above struct {
	name string
	node
}

// looker looks at the layers.
type looker struct {
	ctx     context.Context
	layers  changes.Layers
	applied changes.Applied
	since   int64
	moved   map[string]bool
	parents map[string]node // of the lower layer
	left    int             // entries that it may still look at
	depth   int             // of the directory that it looks at
}

// look finds out what the layers have. Changes since then, in nanoseconds since the epoch, make
// a conflict.
func look(ctx context.Context, layers changes.Layers, list []changes.Change, applied changes.Applied, since int64) ([]found, error) {
	l := looker{ctx: ctx, layers: layers, applied: applied, since: since, moved: map[string]bool{}, parents: map[string]node{}, left: maxEntries}
	for _, c := range list {
		if c.Kind == changes.Renamed {
			l.moved[c.From] = true
		}
	}
	all := make([]found, len(list))
	for i, c := range list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var err error
		if all[i], err = l.at(c); err != nil {
			return nil, fmt.Errorf("look at %q: %w", c.Path, err)
		}
	}
	return all, nil
}

func (l *looker) at(c changes.Change) (f found, err error) {
	f = found{Change: c, lost: c.Lost}
	upper, lower := int(l.layers.Upper.Fd()), int(l.layers.Lower.Fd())
	if c.New.Type != "" {
		f.upper, err = nodeAt(upper, c.Path)
	}
	if err == nil && c.Old.Type != "" && c.Place != "" && !l.moved[c.Place] {
		f.lower, err = nodeAt(lower, c.Place)
	}
	if err == nil && c.Kind == changes.Renamed {
		f.from, err = nodeAt(lower, c.From)
	}
	if err != nil {
		return f, err
	}
	if f.lower.isDir() && (c.New.Type != directory || c.Kind == changes.Renamed) {
		f.fresh, err = l.newer(c.Place)
	}
	if err == nil && c.New.Type == file && c.Old.Type == "" {
		f.lost = l.origin(c.Path)
	}
	if err == nil {
		f.above, err = l.aboveOf(c, f)
	}
	return f, err
}

// aboveOf are the directories of the lower layer in which c, once it is applied, moves a name.
func (l *looker) aboveOf(c changes.Change, f found) (all []above, err error) {
	for _, name := range []string{c.Place, c.From} {
		for dir := name; dir != "" && dir != "."; {
			dir = path.Dir(dir)
			if dir == "." {
				break
			}
			n, known := l.parents[dir]
			if !known {
				if n, err = nodeAt(int(l.layers.Lower.Fd()), dir); err != nil {
					return nil, err
				}
				l.parents[dir] = n
			}
			if n.isDir() {
				all = append(all, above{dir, n})
			}
		}
	}
	if c.Kind == changes.Renamed {
		all = append(all, above{c.From, f.from})
	}
	if f.lower.isDir() {
		all = append(all, above{c.Place, f.lower})
	}
	return all, nil
}

// newer reports whether a directory of the lower layer has a file that changed since, or more
// than is looked at.
func (l *looker) newer(name string) (bool, error) {
	if l.ctx.Err() != nil {
		return false, context.Cause(l.ctx)
	}
	if l.depth++; l.depth > maxDepth {
		return true, nil
	}
	defer func() { l.depth-- }()
	fd, err := changes.OpenBeneath(int(l.layers.Lower.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	dir := os.NewFile(uintptr(fd), name)
	newer, err := l.newerIn(dir, name)
	return newer, errors.Join(err, dir.Close())
}

func (l *looker) newerIn(dir *os.File, name string) (bool, error) {
	for {
		names, err := dir.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if l.left -= len(names); l.left < 0 {
			return true, nil
		}
		for _, entry := range names {
			if newer, err := l.isNewer(int(dir.Fd()), path.Join(name, entry), entry); newer || err != nil {
				return newer, err
			}
		}
	}
}

func (l *looker) isNewer(dir int, name, entry string) (bool, error) {
	n, err := entryAt(dir, entry)
	switch {
	case err != nil:
		return false, err
	case l.moved[name]:
		return false, nil
	case n.isDir():
		return l.newer(name)
	}
	return n.Type != "" && n.ctime >= l.since && l.applied[name].Lower.Ctime != n.ctime, nil
}

// origin reports whether a file of the upper layer, of which the lower one has none, is a copy
// of one that the host changed or removed since. overlayfs notes it as a handle
// (open_by_handle_at(2)) in trusted.overlay.origin.
func (l *looker) origin(name string) (lost bool) {
	fd, err := changes.OpenBeneath(int(l.layers.Upper.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || l.applied.Has(changes.StampOf(&st).Ino) {
		return false
	}
	value := make([]byte, 256)
	n, err := unix.Fgetxattr(fd, "trusted.overlay.origin", value)
	const head = 21 // version, magic, length, flags, type, UUID of 16 bytes
	if err != nil || n <= head {
		return false
	}
	handle := unix.NewFileHandle(int32(value[4]), value[head:n])
	return l.isLost(handle)
}

func (l *looker) isLost(handle unix.FileHandle) bool {
	dir, err := unix.Openat(int(l.layers.Lower.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	of, err := unix.OpenByHandleAt(dir, handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil { // an earlier apply removes files of the host too
		return errors.Is(err, unix.ESTALE) && l.applied == nil
	}
	defer unix.Close(of)
	var st unix.Stat_t
	if unix.Fstat(of, &st) != nil || st.Nlink == 0 {
		return l.applied == nil
	}
	return st.Ctim.Nano() >= l.since
}
