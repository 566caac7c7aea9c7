// Package output keeps what a command writes to one stream, and passes it on to its
// readers.
//
// A stream is a file in which the offset of a byte is its offset in the stream. The
// size of the file is the total at every instant, also when the daemon was killed, and
// a later daemon goes on where it ended. Bytes get from the command's pipe into the
// file by splice(2): they are in the one or in the other, and never only in the memory
// of a process that may die.
//
// A reader that holds its place ([Store.Hold]) gets every byte in order. The pipe is
// emptied no further than a window ahead of the slowest such reader, so the command
// waits for it, and nothing past its place is left out. What stays of a stream that
// nobody holds is bounded: its first and its last half, with a hole in the file
// between them. Other readers get what there is, and are told what is left out.
//
// The life of a store: Create, or Open after a restart; Fill until the pipe ends;
// Finish; Close; and, when nobody wants the output any more, Remove.
package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	goruntime "runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const (
	// modeWhole is the mode of a file to which bytes may still be added.
	modeWhole = 0o600
	// modeLost is the mode of a file that ends where bytes were lost. It needs no
	// space on a full disk, and keeps a later daemon from adding to the file.
	modeLost = 0o400
)

// errClosed is what those get who still use a store that was closed.
var errClosed = errors.New("the output store is closed")

// Options say where a store keeps its stream, and how much of it.
type Options struct {
	Path  string
	Limit int64 // bytes that stay, at least 2
	Room  *Room // that it shares with others while it is filled; nil: it has its own
	// Discard paces what is read only to be left out, in bytes; nil: nothing does. Its
	// burst holds a chunk.
	Discard *rate.Limiter
	// Spare is a file on another file system for what the disk of Path does not take.
	// It holds less, and counts in SpareRoom. Empty: there is none.
	Spare     string
	SpareRoom *Room
}

// Store is one stream of one command. Its methods may be called at the same time.
type Store struct {
	o     Options
	turns chan struct{} // who may copy much of a live stream; a crowd would take every processor from Fill

	// work is held while bytes are moved and counted, so that who holds it sees
	// each byte either in the pipe or in the total. It comes before mu.
	work    sync.Mutex
	wide    bool  // the pipe was enlarged; guarded by work, as is
	charged int64 // what counts in the room

	mu      sync.Mutex // guards what follows; held for no system call
	bound   bound
	own     *os.File // nil before the first byte and after the last, as is
	spare   *os.File
	split   int64 // from here on, bytes are in the spare file; -1: none are
	total   int64 // bytes seen
	kept    int64 // bytes that reached a file: total, unless some were lost
	hole    span  // whole pages that are left out of them
	holds   map[*Hold]struct{}
	why     error // why more is left out than the limit says
	broken  bool  // nothing more is kept
	changed chan struct{}
	pipe    syscall.RawConn
	filling bool
	eof     bool // the pipe has ended
	done    bool // nothing more will come
	closed  bool
}

// Create returns the store of a new stream. Its file is made at the first byte, with a
// mode that only the owner may read. A limit that is too small is [sbxerr.Limits], a
// path that is taken [sbxerr.StateDir].
func Create(o Options) (*Store, error) {
	const op = "output.create"
	s, err := newStore(o)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Limits, op, err)
	}
	if _, err := os.Lstat(o.Path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%q exists already", o.Path)
		}
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return s, nil
}

func newStore(o Options) (*Store, error) {
	b, err := newBound(o.Limit)
	return &Store{
		o: o, bound: b, split: -1, holds: map[*Hold]struct{}{}, turns: make(chan struct{}, max(1, goruntime.GOMAXPROCS(0)-1)),
	}, err
}

// Open returns the store that was created with the same options, by this process or by
// one that is gone. A file that is not a plain one of the caller's own is refused with
// [sbxerr.StateDir].
func Open(o Options) (_ *Store, err error) {
	const op = "output.open"
	s, err := newStore(o)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Limits, op, err)
	}
	if err := s.adopt(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, s.Close()))
	}
	return s, nil
}

// adopt takes over what an earlier process wrote. The hole is what that left out.
func (s *Store) adopt() (err error) {
	var own, spare *unix.Stat_t
	if s.own, own, err = openKept(s.o.Path); err != nil {
		return err
	}
	if s.o.Spare != "" {
		if s.spare, spare, err = openKept(s.o.Spare); err != nil {
			return err
		}
	}
	last := own
	if own != nil {
		s.kept = own.Size
		if s.hole, err = findHole(s.own, span{0, s.kept}); err != nil {
			return err
		}
	}
	if spare != nil {
		last = spare
		if err := s.adoptSpare(spare.Size); err != nil {
			return err
		}
	}
	s.total = s.kept
	switch {
	case last != nil && last.Mode&0o777 == modeLost:
		s.broken = true
		s.why = sbxerr.New(sbxerr.StateDir, "output.open", "output past byte %d could not be kept by an earlier daemon", s.kept)
	case s.total > 0 && s.hole == span{0, s.total}:
		s.why = errDropped
	}
	return nil
}

func (s *Store) adoptSpare(size int64) error {
	s.split = s.kept
	s.kept = max(s.split, size)
	s.spareLocked()
	if s.hole.size() > 0 && s.hole.to < s.split {
		return nil
	}
	hole, err := findHole(s.spare, span{s.split, s.kept})
	if s.hole.size() == 0 || hole.from == s.split {
		s.hole = s.hole.and(hole)
	}
	return err
}

// openKept opens what an earlier process kept, nil where there is nothing, and refuses
// what this package cannot have made. It does not wait for the writer of a fifo.
func openKept(path string) (*os.File, *unix.Stat_t, error) {
	f, err := openFile(path, unix.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := checkOwn(f, path)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

func checkOwn(f *os.File, path string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %q: %w", path, err)
	}
	mode := st.Mode & 0o7777
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%q is not a regular file", path)
	case int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%q belongs to uid %d", path, st.Uid)
	case st.Nlink != 1:
		return nil, fmt.Errorf("%q has %d names", path, st.Nlink)
	case mode != modeWhole && mode != modeLost:
		return nil, fmt.Errorf("%q has mode %#o, not %#o", path, mode, modeWhole)
	}
	return &st, nil
}

// openFile opens path itself, never what a link there names.
func openFile(path string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_LARGEFILE, mode)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case !errors.Is(err, unix.EINTR):
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Finish says that nothing more will come: readers end after the last byte, and what a
// pipe still brings is thrown away and not counted. The store holds no descriptor any
// more, as there are many that are kept and few that are read.
func (s *Store) Finish() {
	s.work.Lock() // a byte that is being moved is still counted
	defer s.work.Unlock()
	s.change(func() { s.done = true })
	s.cut()
	_ = s.closeFiles(func() {}) // all was written by calls that succeeded
	s.charge()
}

// Close releases the files, which stay. Readers that have not reached the end of a
// finished stream end with [sbxerr.State], and so does Fill, without taking another
// byte from its pipe.
func (s *Store) Close() error {
	s.work.Lock()
	defer s.work.Unlock()
	err := s.closeFiles(func() { s.closed = true })
	s.charge()
	return sbxerr.Wrap(sbxerr.StateDir, "output.close", err)
}

func (s *Store) closeFiles(also func()) error {
	var files []*os.File
	s.change(func() {
		files = []*os.File{s.own, s.spare}
		s.own, s.spare = nil, nil
		also()
	})
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Remove removes the files of a store. That there are none is no error.
func Remove(paths ...string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, owndir.Unlink(path))
	}
	return sbxerr.Wrap(sbxerr.StateDir, "output.remove", errors.Join(errs...))
}

// Total returns the bytes seen so far, which is also the offset of the next one, and
// whether not all of them stay. Bytes that were lost before a restart are not in n.
func (s *Store) Total() (n int64, truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.leftOut().size() > 0 || s.total > min(s.kept, s.o.Limit)
}

// Kept returns how many bytes of the stream can be read.
func (s *Store) Kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept - s.leftOut().size()
}

// Lost returns why more is left out than the limit says, or nil.
func (s *Store) Lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// LostBytes returns how many bytes no disk took: no reader had them.
func (s *Store) LostBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - s.kept
}

// change changes what mu guards, and wakes everyone who waits for a change.
func (s *Store) change(f func()) {
	s.mu.Lock()
	f()
	waiting := s.changed
	s.changed = nil
	s.mu.Unlock()
	if waiting != nil {
		close(waiting)
	}
}

// next returns a channel that is closed at the next change; mu is held.
func (s *Store) next() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}
