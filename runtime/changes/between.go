package changes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxTime bounds a call of Between, whose callers wait for each other.
const maxTime = 10 * time.Minute

// Pair are two trees that are compared, and the name under which their files are told.
type Pair struct {
	At       string // empty: the names are those of the trees
	Old, New Tree
	Covered  string // a name at the top that something is mounted on, which hides what is there

	// Common is until when both were one: a file that has not changed since then is the same in both,
	// and is not read. Zero: they never were.
	Common time.Time
}

// pairs bound the memory of all calls of Between together.
var pairs = make(chan struct{}, maxWalks)

// Between returns how the new trees of pairs differ from the old ones: in type, permission bits,
// owner, content or target. Nobody writes to them meanwhile. A rename is a deletion and an addition.
// The list is sorted by name; more says that there are more. It ends with ctx.
func Between(ctx context.Context, list []Pair, o Options) (_ []Change, more bool, err error) {
	select {
	case pairs <- struct{}{}:
		defer func() { <-pairs }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("the comparison took more than %s", maxTime))
	defer cancel()
	c := comparison{walk: walk{Options: Options{Most: cmp.Or(o.Most, maxListed)}, ctx: ctx}, only: o.Only, same: map[[2]inode]bool{}}
	for _, p := range list {
		if err = c.pair(p); err != nil {
			break
		}
	}
	if errors.Is(err, errBound) {
		c.more, err = true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("compare the trees: %w", err)
	}
	slices.SortStableFunc(c.list, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c.list, c.more, nil
}

// comparison is a walk through two trees at a time.
type comparison struct {
	walk
	only   []string          // as in Options
	common int64             // as in Pair, nanoseconds
	same   map[[2]inode]bool // files with several names whose content was compared
	pieces [2][piece]byte    // of the files that are compared
}

type inode struct{ device, number uint64 }

func (c *comparison) pair(p Pair) error {
	old, err := p.Old.open()
	if err != nil {
		return err
	}
	defer old.close()
	is, err := p.New.open()
	if err != nil {
		return err
	}
	defer is.close()
	c.common = 0
	if !p.Common.IsZero() {
		c.common = p.Common.UnixNano()
	}
	return c.dir(old, is, p.At, p.Covered, 0)
}

// dir compares two directories, of which old may be none. The names of both are kept until it ends.
func (c *comparison) dir(old, is dir, at, covered string, depth int) error {
	if depth >= maxDepth || len(at) >= unix.PathMax {
		c.more = true
		return nil
	}
	defer func(seen, read int) { c.seen, c.read = seen, read }(c.seen, c.read)
	names, err := c.both(old, is)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == covered || !c.leadsTo(path.Join(at, name)) {
			continue
		}
		if err := c.name(old, is, at, name, depth); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// leadsTo reports whether something that is listed can be at or below a name.
func (c *comparison) leadsTo(name string) bool {
	return len(c.only) == 0 || slices.ContainsFunc(c.only, func(only string) bool { return Within(name, only) || Within(only, name) })
}

// lists reports whether a change is listed: at or below a name that was asked for, or that of a
// directory above one that is there on one side alone.
func (c *comparison) lists(change Change) bool {
	return len(c.only) == 0 || change.Old.Type != change.New.Type ||
		slices.ContainsFunc(c.only, func(only string) bool { return Within(change.Path, only) })
}

// both are the names that two directories may differ in. What the layer below both has alone is in
// both the same.
func (c *comparison) both(old, is dir) ([]string, error) {
	layers := []*os.File{old.top, is.top}
	if !old.sharesUnder(is) {
		layers = append(layers, old.under, is.under)
	}
	var all []string
	for _, l := range layers {
		if l == nil {
			continue
		}
		names, err := c.names(l)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (c *comparison) name(old, is dir, at, name string, depth int) error {
	was, err := old.stat(name)
	if err != nil {
		return err
	}
	now, err := is.stat(name)
	if err != nil || was.sharedWith(now) {
		return err
	}
	change := Change{Path: path.Join(at, name), Kind: Modified, Old: was.state(name), New: now.state(name)}
	switch {
	case was.in == nil && now.in == nil:
		return nil
	case was.in == nil:
		change.Kind = Added
	case now.in == nil:
		change.Kind = Deleted
	}
	same, err := c.equal(was, now, change, name)
	if err != nil {
		return err
	}
	if !same && c.lists(change) {
		if err := c.add(change); err != nil {
			return err
		}
	}
	if change.New.Type != directory {
		return nil
	}
	next, err := is.child(now, name)
	if err != nil {
		return err
	}
	defer next.close()
	var before dir
	if change.Old.Type == directory {
		if before, err = old.child(was, name); err != nil {
			return err
		}
		defer before.close()
	}
	return c.dir(before, next, change.Path, "", depth+1)
}

// equal reports whether two files are the same but for what is in directories.
func (c *comparison) equal(was, now file, change Change, name string) (bool, error) {
	if change.Old != change.New || was.uid() != now.uid() || was.gid() != now.gid() {
		return false, nil
	}
	switch change.New.Type {
	case "file":
		return c.sameContent(was, now, name)
	case "device":
		return was.st.Rdev == now.st.Rdev, nil
	}
	return true, nil
}

// sameContent compares files of one size. One with several names is read once.
func (c *comparison) sameContent(was, now file, name string) (same bool, err error) {
	if stamp := StampOf(&was.st); was.st.Size == 0 || was.top && now.top && stamp == StampOf(&now.st) && stamp.Ctime < c.common {
		return true, nil
	}
	if was.st.Nlink > 1 && now.st.Nlink > 1 {
		key := [2]inode{was.inode(), now.inode()}
		if same, known := c.same[key]; known {
			return same, nil
		}
		defer func() {
			if err == nil && len(c.same) < maxEntries {
				c.same[key] = same
			}
		}()
	}
	a, err := was.open(name)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := now.open(name)
	if err != nil {
		return false, err
	}
	defer b.Close()
	return c.sameBytes(a, b, was.st.Size)
}

// piece is how many bytes of a file are read at a time.
const piece = 64 << 10

// sameBytes compares two files, without what is a hole in both.
func (c *comparison) sameBytes(a, b *os.File, size int64) (bool, error) {
	for at := int64(0); at < size; {
		if c.ctx.Err() != nil {
			return false, context.Cause(c.ctx)
		}
		from, err := nextData(a, b, at, size)
		if err != nil || from == size {
			return err == nil, err
		}
		n := min(piece, size-from)
		x, y := c.pieces[0][:n], c.pieces[1][:n]
		if err := errors.Join(readAt(a, x, from), readAt(b, y, from)); err != nil {
			return false, err
		}
		if !bytes.Equal(x, y) {
			return false, nil
		}
		at = from + n
	}
	return true, nil
}

// readAt fills piece, which ends at or before the end of the file.
func readAt(f *os.File, piece []byte, at int64) error {
	n, err := f.ReadAt(piece, at)
	if n == len(piece) {
		return nil
	}
	return err
}

// nextData is where one of two files has data at or after a place; size where none has.
func nextData(a, b *os.File, at, size int64) (int64, error) {
	next := size
	for _, f := range []*os.File{a, b} {
		to, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // holes alone
		case err != nil:
			return 0, err
		default:
			next = min(next, to)
		}
	}
	return next, nil
}
