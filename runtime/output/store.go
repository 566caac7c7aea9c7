// Package output keeps what a command writes to one stream, and passes it on to its
// readers: the reader of a foreground call holds its place; filling waits when it is a
// window ahead of the slowest held place, and no hole is punched past one; the hold ends
// with its caller.
//
// A stream is a file in which the offset of a byte is its offset in the stream. The
// size of the file is the total at every instant, also when the daemon was killed, and
// a later daemon goes on where it ended. Bytes get from the command's pipe into the
// file by splice(2): they are in the one or in the other, and never only in the memory
// of a process that may die.
//
// What stays of a stream is bounded: its first and its last half, with a hole in the
// file between them. Readers without a hold get what there is, and are told what is
// left out.
//
// When bytes came is known to 10 milliseconds, and better of what is new than of what is
// old. A file of marks beside the output says so to a later daemon.
//
// The life of a store: Create, or Open after a restart; Fill until the pipe ends;
// Finish; Close; and, when nobody wants the output any more, Remove.
package output

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	o Options

	// work is held while bytes are moved and counted, so that who holds it sees
	// each byte either in the pipe or in the total. It comes before mu.
	work    sync.Mutex
	charged int64 // what counts in the room; guarded by work, as is
	room    *Room

	mu      sync.Mutex // guards what follows; held for no system call but close(2)
	parts   []part     // one, or two with the spare file
	bound   bound
	total   int64 // bytes seen
	kept    int64 // bytes that reached a file: total, unless some were lost
	hole    span  // whole pages that are left out of them
	holds   map[*Hold]struct{}
	stamps  stamps
	why     error // why more is left out than the limit says
	broken  bool  // nothing more is kept
	changed chan struct{}
	pipe    syscall.RawConn
	filling bool
	eof     bool // the pipe has ended
	done    bool // nothing more will come
	closed  bool
}

// part is a file that has the bytes of the stream from an offset on.
type part struct {
	path string
	from int64
	file *os.File // nil before its first byte, and once the stream is finished
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
	if o.Limit < 2 {
		return nil, fmt.Errorf("an output limit of %d bytes is too small, give at least 2", o.Limit)
	}
	return &Store{o: o, room: o.Room, parts: []part{{path: o.Path}}, bound: halves(o.Limit), holds: map[*Hold]struct{}{}}, nil
}

// Open returns the store that was created with the same options, by this process or by
// one that is gone. A file that is not a plain one of the caller's own is refused with
// [sbxerr.StateDir].
func Open(o Options) (*Store, error) {
	const op = "output.open"
	s, err := newStore(o)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Limits, op, err)
	}
	err = s.adopt(o.Path)
	if err == nil && o.Spare != "" {
		err = s.adopt(o.Spare)
	}
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, s.Close()))
	}
	s.total, s.stamps.saved = s.kept, savedMarks(o.Path)
	switch {
	case s.broken:
		s.why = sbxerr.New(sbxerr.StateDir, op, "output past byte %d could not be kept by an earlier daemon", s.kept)
	case s.total > 0 && s.hole == span{0, s.total}:
		s.why = errDropped
	}
	return s, nil
}

// adopt takes over a file of an earlier process. The hole is what that left out.
func (s *Store) adopt(path string) error {
	f, err := os.OpenFile(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // it does not wait for the writer of a FIFO
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	from := s.kept
	if path == s.o.Path {
		s.parts[0].file = f
	} else {
		s.spare(f)
	}
	st, err := checkOwn(f)
	if err != nil {
		return err
	}
	s.kept, s.broken = max(from, st.Size), st.Mode&0o777 == modeLost
	hole, err := findHole(f, span{from, s.kept})
	if s.hole.size() == 0 || s.hole.to == from && hole.from == from {
		s.hole = s.hole.and(hole)
	}
	return err
}

// checkOwn refuses a file that this package cannot have made.
func checkOwn(f *os.File) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %q: %w", f.Name(), err)
	}
	mode := st.Mode & 0o7777
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%q is not a regular file", f.Name())
	case int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%q belongs to uid %d", f.Name(), st.Uid)
	case st.Nlink != 1:
		return nil, fmt.Errorf("%q has %d names", f.Name(), st.Nlink)
	case mode != modeWhole && mode != modeLost:
		return nil, fmt.Errorf("%q has mode %#o, not %#o", f.Name(), mode, modeWhole)
	}
	return &st, nil
}

// Finish says that nothing more will come: readers end after the last byte, and what a
// pipe still brings is thrown away and not counted. The store holds no descriptor any
// more, as there are many that are kept and few that are read.
func (s *Store) Finish() {
	s.work.Lock() // a byte that is being moved is still counted
	defer s.work.Unlock()
	s.change(func() { s.done = true })
	s.fit()
	_ = s.closeFiles() // all was written by calls that succeeded
}

// Close releases the files, which stay. Readers that have not reached the end of a
// finished stream end with [sbxerr.State], and so does Fill, without taking another
// byte from its pipe.
func (s *Store) Close() error {
	s.work.Lock()
	defer s.work.Unlock()
	s.change(func() { s.closed = true })
	s.fit()
	return sbxerr.Wrap(sbxerr.StateDir, "output.close", s.closeFiles())
}

func (s *Store) closeFiles() error {
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.parts {
		if s.parts[i].file = nil; p.file != nil {
			errs = append(errs, p.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Remove removes the files of a store. That there are none is no error.
func Remove(paths ...string) error {
	var errs []error
	for _, path := range paths {
		for _, suffix := range []string{"", timesSuffix, timesNewSuffix} {
			errs = append(errs, owndir.Unlink(path+suffix))
		}
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

// Takes returns how many bytes the stream takes: those that can be read, and its times.
func (s *Store) Takes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept - s.leftOut().size() + s.stamps.size()
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

// await returns when ok, which is called with mu held, or when ctx ends, whose cause it
// then returns.
func (s *Store) await(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
