package apply

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/peer"
)

// item is something new, to be made among the staged files.
type item struct {
	change   changes.Change
	name     string // among the staged files
	upper    node
	gid      uint32 // of what it replaces
	replaces bool
	step     int // that puts it; -1: it is in a directory that is put
}

// stager makes the new files in a directory of their own.
type stager struct {
	ctx   context.Context
	as    *peer.Actor
	upper int // root of the upper layer
	dir   int // the directory
	plan  *Plan
	marks []mark
}

// chunk is how many bytes are copied between two looks at the context.
const chunk = 1 << 20

// stage makes all items. Directories get their modes and times at the end, the deepest first.
func (s *stager) stage() error {
	for i := range s.plan.items {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err := s.make(&s.plan.items[i]); err != nil {
			return fmt.Errorf("%q: %w", clip(s.plan.items[i].change.Path), err)
		}
	}
	for i := len(s.plan.items) - 1; i >= 0; i-- {
		it := &s.plan.items[i]
		if it.change.New.Type != directory {
			continue
		}
		if err := s.as.Do(func() error { return s.settle(it) }); err != nil {
			return fmt.Errorf("%q: %w", clip(it.change.Path), err)
		}
	}
	slices.SortStableFunc(s.plan.modes, func(a, b op) int { return deeper(a.Path, b.Path) })
	return nil
}

func (s *stager) make(it *item) error {
	switch it.change.New.Type {
	case directory:
		return s.as.Do(func() error {
			return s.in(it, func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o700) })
		})
	case symlink:
		return s.as.Do(func() error {
			return s.in(it, func(dir int, name string) error {
				return errors.Join(unix.Symlinkat(it.change.New.Link, dir, name), settime(dir, name, it.upper), s.note(it, dir, name))
			})
		})
	}
	from, err := s.open(it)
	if err != nil {
		return err
	}
	err = s.as.Do(func() error {
		return s.in(it, func(dir int, name string) error {
			return errors.Join(s.copy(it, from, dir, name), s.note(it, dir, name))
		})
	})
	return errors.Join(err, unix.Close(from))
}

// in calls act with the staged directory in which it is made.
func (s *stager) in(it *item, act func(dir int, name string) error) error {
	if path.Dir(it.name) == "." {
		return act(s.dir, it.name)
	}
	return inParent(s.dir, it.name, act)
}

// open opens a file of the upper layer, if it is the one that was planned with.
func (s *stager) open(it *item) (int, error) {
	fd, err := changes.OpenBeneath(s.upper, it.change.Path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && !nodeOf(&st).is(it.upper) {
		err = errors.New("the sandbox changed it meanwhile")
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// copy writes a new file with the content, the mode and the time of an open one, and the group
// of what it replaces, if its owner may give it that.
func (s *stager) copy(it *item, from, dir int, name string) error {
	to, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = s.copyData(from, to, it.upper.Size)
	if err == nil && it.replaces {
		_ = unix.Fchown(to, -1, int(it.gid))
	}
	if err == nil {
		err = unix.Fchmod(to, it.upper.Mode&0o1777)
	}
	return errors.Join(err, unix.Close(to), settime(dir, name, it.upper))
}

// copyData copies a file with its holes.
func (s *stager) copyData(from, to int, size int64) error {
	if err := unix.Ftruncate(to, size); err != nil {
		return err
	}
	buf := make([]byte, min(chunk, size))
	for end := int64(0); ; {
		begin, err := unix.Seek(from, end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // holes alone
			return nil
		}
		if err == nil {
			end, err = unix.Seek(from, begin, unix.SEEK_HOLE)
		}
		for at := begin; err == nil && at < min(end, size); {
			at, err = s.copyChunk(from, to, at, buf[:min(int64(len(buf)), min(end, size)-at)])
		}
		if err != nil || end >= size {
			return err
		}
	}
}

func (s *stager) copyChunk(from, to int, at int64, buf []byte) (next int64, err error) {
	if s.ctx.Err() != nil {
		return at, context.Cause(s.ctx)
	}
	n, err := unix.Pread(from, buf, at)
	if err == nil && n == 0 {
		err = errors.New("it became shorter")
	}
	for done := 0; err == nil && done < n; {
		var wrote int
		wrote, err = unix.Pwrite(to, buf[done:n], at+int64(done))
		done += wrote
	}
	return at + int64(n), err
}

func settime(dir int, name string, n node) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(n.Mtime)}
	return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// note keeps what was made: for the step that puts it, and for later differences.
func (s *stager) note(it *item, dir int, name string) error {
	made, err := entryAt(dir, name)
	if err != nil {
		return err
	}
	m := mark{Path: []byte(it.change.Path)}
	if !made.isDir() {
		m.Upper = changes.Stamp{Ino: it.upper.Ino, Ctime: it.upper.ctime, Size: it.upper.Size}
		m.Lower = changes.Stamp{Ino: made.Ino, Ctime: made.ctime, Size: made.Size}
	}
	if it.step < 0 {
		s.marks = append(s.marks, m)
		return nil
	}
	s.plan.steps[it.step].Node, s.plan.steps[it.step].Mark = made, &m
	return nil
}

// settle gives a directory its mode and time. One that its owner cannot write to gets its mode
// when all is in its place: a directory that is moved must be writable.
func (s *stager) settle(it *item) error {
	return s.in(it, func(dir int, name string) error {
		made, err := entryAt(dir, name)
		if err != nil {
			return err
		}
		mode := it.upper.Mode & 0o1777
		if err = chmod(dir, name, made, mode|0o300); err == nil {
			err = errors.Join(settime(dir, name, it.upper), s.note(it, dir, name))
		}
		if mode&0o300 != 0o300 {
			s.plan.modes = append(s.plan.modes, op{Do: doMode, Path: []byte(it.change.Path), Node: made, Mode: mode})
		}
		return err
	})
}
