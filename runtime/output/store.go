// Package output keeps what a command writes to one stream, within a bound:
// the first half of the bound and the last half of it, with the true total.
//
// A stream is a file in which the offset of a byte is its offset in the
// stream. The size of the file is therefore the true total at every instant,
// also when the daemon was killed, and a daemon that comes after goes on where
// it ended. What is bounded is what stays on the disk: holes are punched
// between the two halves. Bytes get from the command's pipe into the file by
// splice(2), so that they are in the one or in the other, and never only in
// the memory of a process that may die.
//
// The pipe is emptied as fast as it fills and never waits for a reader of the
// store. Readers follow at their own pace: up to the bound they see every byte
// as it comes; a stream that passes the bound has an explicit mark where bytes
// are left out.
//
// The life of a store: Create, or Open after a restart; Fill until the pipe
// ends; Finish; Close; and, when nobody wants the output any more, Remove.
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

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/sbxerr"
)

const (
	// modeWhole is the mode of a file to which bytes may still be added.
	modeWhole = 0o600
	// modeLost is the mode of a file that ends where bytes were lost. It needs
	// no space on a full disk, and it keeps a later daemon from adding to the
	// file what does not belong there.
	modeLost = 0o400
	// modeFull is that of one that met a full room: the host's disk is not to blame.
	modeFull = 0o500
)

// errClosed is what those get who still use a store that was closed.
var errClosed = errors.New("the output store is closed")

// Store is one stream of one command. Its methods may be called at the same
// time.
type Store struct {
	turns chan struct{} // who may copy much of a live stream; a crowd would take every processor from Fill

	// work is held while bytes are moved and counted, so that who holds it sees
	// each byte either in the pipe or in the total. It comes before mu.
	work    sync.Mutex
	wide    bool  // the pipe was enlarged; guarded by work
	room    *Room // that it shares with others; guarded by work, as is
	charged int64 // what of it is counted there
	// spare is the file for a store that cannot have its own, and where it counts;
	// both are guarded by work.
	spare     string
	spareRoom *Room

	mu      sync.Mutex // guards what follows; held for no system call
	path    string     // changes with bound, and only before the first byte; with work held too
	bound   bound
	spared  bool          // that is, the spare file is in use
	changed chan struct{} // closed at the next change; nil when nobody waits
	file    *os.File      // nil before the first byte, and after the last
	pipe    syscall.RawConn
	filling bool
	eof     bool // the pipe has ended
	done    bool // nothing more will come
	closed  bool
	total   int64 // bytes seen, also those left out
	kept    int64 // bytes that reached the file: total, unless some were lost
	gone    int64 // up to here, bytes past the head may be punched
	lost    error // why bytes could not be kept
}

// Create returns a store that keeps at most limit bytes, at least 2, in a file
// at path. The file must not exist; it is made at the first byte, with a mode
// that only the owner may read. A limit that is too small is [sbxerr.Limits],
// a path that is taken [sbxerr.StateDir].
func Create(path string, limit int64) (*Store, error) {
	const op = "output.create"
	b, err := newBound(limit)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Limits, op, err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%q exists already", path)
		}
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return newStore(path, b), nil
}

func newStore(path string, b bound) *Store {
	return &Store{path: path, bound: b, turns: make(chan struct{}, max(1, goruntime.GOMAXPROCS(0)-1))}
}

// Open returns the store that was made at path with the same limit, by this
// process or by one that is gone. Where there is no file, nothing was written
// yet. A file that is not a plain one of the caller's own is refused with
// [sbxerr.StateDir].
func Open(path string, limit int64) (_ *Store, err error) {
	const op = "output.open"
	b, err := newBound(limit)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Limits, op, err)
	}
	s := newStore(path, b)
	f, err := openKept(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	if err := s.adopt(f); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, f.Close()))
	}
	return s, nil
}

// adopt takes over what an earlier process wrote, and punches what it had no
// time to punch.
func (s *Store) adopt(f *os.File) error {
	st, err := checkOwn(f, s.path)
	if err != nil {
		return err
	}
	s.file, s.total, s.kept = f, st.Size, st.Size
	switch st.Mode & 0o777 {
	case modeDropped:
		s.kept, s.lost = 0, errDropped
		return hollow(f, s.total)
	case modeLost:
		s.lost = sbxerr.New(sbxerr.StateDir, "output.open", "output past byte %d could not be kept by an earlier daemon", st.Size)
	case modeFull:
		s.lost = errFull
	}
	if hole, ok := s.bound.hole(0, s.kept, true); ok {
		if err := s.punch(hole); err != nil {
			s.lose(err) // what there is can still be read
		}
	}
	return nil
}

// checkOwn refuses what this package cannot have made.
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
	case mode != modeWhole && mode != modeLost && mode != modeFull && mode != modeDropped:
		return nil, fmt.Errorf("%q has mode %#o, not %#o", path, mode, modeWhole)
	}
	return &st, nil
}

// openKept opens what an earlier process kept, without waiting for the writer of a
// fifo.
func openKept(path string) (*os.File, error) { return openFile(path, unix.O_RDWR|unix.O_NONBLOCK, 0) }

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

// Finish says that nothing more will come: readers end after the last byte,
// and what a pipe still brings is thrown away and not counted. The store holds no
// descriptor any more, as there are many that are kept and few that are read.
func (s *Store) Finish() {
	s.work.Lock() // a byte that is being moved is still counted
	defer s.work.Unlock()
	s.trim(true) // what exceeds the limit would stay with it
	var f *os.File
	s.change(func() { f, s.file, s.done = s.file, nil, true })
	s.occupy()
	if f != nil {
		_ = f.Close() // all was written by calls that succeeded
	}
}

// Close releases the file, which stays. Readers that have not reached the end
// of a finished stream end with [sbxerr.State], and so does Fill, without
// taking another byte from its pipe.
func (s *Store) Close() error {
	s.work.Lock()
	defer s.work.Unlock()
	var f *os.File
	s.change(func() { f, s.file, s.closed = s.file, nil, true })
	s.occupy()
	if f == nil {
		return nil
	}
	return sbxerr.Wrap(sbxerr.StateDir, "output.close", f.Close())
}

// Remove removes the file of a store. That there is none is no error.
func Remove(path string) error {
	return sbxerr.Wrap(sbxerr.StateDir, "output.remove", owndir.Unlink(path))
}

// Total returns the bytes seen so far, which is also the offset of the next
// one, and whether some of them are left out. After a restart, bytes that were
// lost before it are not in n.
func (s *Store) Total() (n int64, truncated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.kept > s.bound.limit() || s.total > s.kept || s.lost != nil
}

// Lost returns why bytes could not be kept, or nil.
func (s *Store) Lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// LostBytes returns how many bytes the disk did not take. What a bound left out, or made
// room for others, is not among them.
func (s *Store) LostBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spared && s.lost == nil {
		return max(0, s.total-s.bound.limit())
	}
	if s.lost == nil || errors.Is(s.lost, errFull) || errors.Is(s.lost, errDropped) {
		return 0
	}
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
