package idblock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
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

// Reservation keeps a range for this process until it is closed or the process
// ends: it is a lock on a file that is named after the range.
type Reservation struct {
	Range
	file *os.File
}

// Close gives the range back.
func (r *Reservation) Close() error {
	return errors.Join(os.Remove(r.file.Name()), r.file.Close())
}

// Reserve takes blocks from base on, or the first free range where base is 0,
// and refuses a range that overlaps one held by a live daemon.
func Reserve(registry string, base, blocks uint32) (*Reservation, error) {
	const op = "idblock.reserve"
	if err := os.MkdirAll(registry, 0o700); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	unlock, err := lockRegistry(registry)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	defer unlock()
	held, err := heldRanges(registry)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	want, err := choose(Range{Base: base, Blocks: blocks}, held)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.IDRange, op, err)
	}
	file, err := lockFile(filepath.Join(registry, want.name()))
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return &Reservation{Range: want, file: file}, nil
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

// heldRanges lists the ranges whose file is locked, and removes the files that
// a dead daemon left.
func heldRanges(registry string) ([]Range, error) {
	names, err := filepath.Glob(filepath.Join(registry, "ids-*"))
	if err != nil {
		return nil, err
	}
	var held []Range
	for _, name := range names {
		var r Range
		if _, err := fmt.Sscanf(filepath.Base(name), "ids-%d-%d", &r.Base, &r.Blocks); err != nil {
			return nil, fmt.Errorf("%q is no reservation of ids", name)
		}
		file, err := lockFile(name)
		if errors.Is(err, unix.EWOULDBLOCK) {
			held = append(held, r)
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := errors.Join(os.Remove(name), file.Close()); err != nil {
			return nil, err
		}
	}
	return held, nil
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
