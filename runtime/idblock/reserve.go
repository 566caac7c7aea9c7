package idblock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Where ranges are looked for when the operator names none: ids that no
// distribution and no container tool assigns (systemd's UIDS-GIDS table has
// them unused).
const (
	firstID = 1879048192
	lastID  = 2147352575
)

// RegistryDir is where the daemons of a host see each other's ranges.
const RegistryDir = "/run/lock/caisson"

// Reservation keeps a range for this process: it is a lock on a file that is
// named after the range and holds the directory of the daemon's claims. When
// the process ends, the range stays taken for as long as there are claims in
// that directory: the sandboxes may live on, and wait for the next daemon.
type Reservation struct {
	Range
	file   *os.File
	claims string
}

// Close gives the range back, unless some of it is still claimed.
func (r *Reservation) Close() error {
	claimed, err := anyIn(r.claims)
	if err == nil && !claimed {
		err = owndir.Remove(r.file.Name())
	}
	return errors.Join(err, r.file.Close())
}

// Reserve takes blocks from base on, or the first free range where base is 0,
// and refuses a range that overlaps one that is held by a live daemon or by the
// sandboxes of a dead one. claims is the directory of this daemon's Allocator:
// the range of which there are claims in it is taken again.
func Reserve(registry, claims string, base, blocks uint32) (*Reservation, error) {
	const op = "idblock.reserve"
	if err := os.MkdirAll(registry, 0o700); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	unlock, err := lockRegistry(registry)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	defer unlock()
	held, own, err := heldRanges(registry, claims)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	want, err := again(own, Range{Base: base, Blocks: blocks})
	if err == nil {
		want, err = choose(want, held)
	}
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.IDRange, op, err)
	}
	file, err := lockFile(filepath.Join(registry, want.name()))
	if err == nil {
		err = writeClaims(file, claims)
	}
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return &Reservation{Range: want, file: file, claims: claims}, nil
}

// again returns the range own, in which there are sandboxes, in the place of
// want, and refuses a want that is another.
func again(own, want Range) (Range, error) {
	if own == (Range{}) {
		return want, nil
	}
	if want.Blocks != own.Blocks || (want.Base != 0 && want.Base != own.Base) {
		return Range{}, fmt.Errorf("sandboxes of an earlier daemon have host ids from %d on in %d blocks: remove them before another range is configured", own.Base, own.Blocks)
	}
	return own, nil
}

func writeClaims(file *os.File, claims string) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(claims), 0)
	return err
}

// anyIn reports whether dir holds any claim. An absent one does not.
func anyIn(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { _, ours := claimed(e); return ours }), err
}

// choose returns want, or the first free range of its size where its base is
// 0. It is pure.
func choose(want Range, held []Range) (Range, error) {
	if want.Base != 0 {
		for _, h := range held {
			if overlap(want, h) {
				return Range{}, fmt.Errorf("host ids %d to %d are held by another daemon", h.Base, h.end()-1)
			}
		}
		return want, nil
	}
	try := Range{Base: firstID, Blocks: want.Blocks}
	for try.end() <= lastID+1 {
		i := firstOverlap(try, held)
		if i < 0 {
			return try, nil
		}
		try.Base = uint32(held[i].end())
	}
	return Range{}, fmt.Errorf("no %d free blocks of host ids between %d and %d", want.Blocks, firstID, uint32(lastID))
}

func firstOverlap(r Range, held []Range) int {
	for i, h := range held {
		if overlap(r, h) {
			return i
		}
	}
	return -1
}

func overlap(a, b Range) bool {
	return uint64(a.Base) < b.end() && uint64(b.Base) < a.end()
}

func (r Range) name() string { return fmt.Sprintf("ids-%d-%d", r.Base, r.Blocks) }

// heldRanges lists the ranges that others hold, and removes the files of those
// that nobody does. own is the range of which there are claims in the directory
// claims, left by a daemon that is dead.
func heldRanges(registry, claims string) (held []Range, own Range, err error) {
	names, err := filepath.Glob(filepath.Join(registry, "ids-*"))
	if err != nil {
		return nil, Range{}, err
	}
	for _, name := range names {
		var r Range
		if _, err := fmt.Sscanf(filepath.Base(name), "ids-%d-%d", &r.Base, &r.Blocks); err != nil || r.name() != filepath.Base(name) {
			continue // somebody else's: it keeps no daemon from starting
		}
		if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() { // nobody can lock it
			held = append(held, r)
			continue
		}
		by, err := holder(name)
		switch {
		case err != nil:
			return nil, Range{}, err
		case by == claims:
			own = r
		case by != "":
			held = append(held, r)
		}
	}
	return held, own, nil
}

// live is the holder of a range whose daemon runs.
const live = "a daemon"

// holder says who holds the range of the file name: live, the directory of claims
// of a dead daemon, or nobody. In the last case the file is removed.
func holder(name string) (string, error) {
	file, err := lockFile(name)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return live, nil
	}
	if err != nil {
		return "", err
	}
	dir, err := io.ReadAll(io.LimitReader(file, unix.PathMax))
	claimed := false
	if err == nil {
		claimed, err = anyIn(string(dir))
	}
	if err == nil && claimed {
		return string(dir), file.Close()
	}
	if err == nil {
		err = owndir.Remove(name)
	}
	return "", errors.Join(err, file.Close())
}

func lockRegistry(registry string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(registry, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // closing a read descriptor cannot lose anything
}

// lockFile opens path and locks it without waiting.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
