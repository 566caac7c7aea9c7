package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const (
	segmentBytes = 64 << 20
	reserveBytes = 1 << 20
	headInterval = time.Second
)

// Options is what a Log is made of.
type Options struct {
	Dir          string        // on disk; made if absent
	Name         string        // of the key
	Required     bool          // work must not begin unless its record is written
	SegmentBytes int64         // 0 is 64 MiB
	MaxBytes     int64         // of all segments; the oldest are removed, but never the newest; 0 keeps all
	MaxAge       time.Duration // of a full segment, since its last record; 0 keeps all
	Log          *slog.Logger
}

// Log is a log that is open to write. Its methods may be called at the same time.
type Log struct {
	o      Options
	signer note.Signer
	public note.Verifier
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	file    *os.File // the newest segment; nil until there is room for one
	first   uint64   // number of its first record
	size    int64    // of it
	last    Head
	torn    bool // what follows size could not be cut off
	low     bool // the disk was full, and there is no reserve
	buf     []byte
	written uint64
	failed  uint64

	heads  sync.Mutex // held while a head is written
	signed Head
}

// Opened says what was found when a log was opened.
type Opened struct {
	PublicKey string
	Torn      int64 // bytes of a record that was not written to its end; they were cut off
	// Broken is why the log is not what was signed; nil if it is.
	Broken error
}

// Open opens the log in o.Dir to go on with it. Only one process may do that. Where
// records are not required and the disk is full, the log begins when there is room.
func Open(o Options) (*Log, Opened, error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{o: o, stop: make(chan struct{}), done: make(chan struct{})}
	opened, err := l.open()
	switch {
	case errors.Is(err, syscall.ENOSPC) && !o.Required:
		o.Log.Error("the disk of the audit log is full, so nothing is recorded", "dir", o.Dir, "err", err)
	case err != nil:
		return nil, Opened{}, sbxerr.Wrap(openCode(err), "audit.open", err)
	}
	l.fillReserve()
	go l.sign()
	return l, opened, nil
}

func openCode(err error) sbxerr.Code {
	if code := sbxerr.Of(err); code != sbxerr.Unknown {
		return code
	}
	return sbxerr.AuditWrite
}

func (l *Log) open() (Opened, error) {
	dir := l.o.Dir
	if err := makeDir(dir); err != nil {
		return Opened{}, err
	}
	firsts, err := segments(dir)
	if err != nil {
		return Opened{}, err
	}
	if l.signer, l.public, err = loadKey(dir, l.o.Name, len(firsts) == 0); err != nil {
		return Opened{}, err
	}
	text, err := owndir.ReadFile(publicKeyPath(dir), maxNote)
	if err != nil {
		return Opened{}, err
	}
	opened := Opened{PublicKey: string(text[:max(0, len(text)-1)])}
	if len(firsts) == 0 {
		err = l.begin(&opened)
	} else {
		err = l.goOn(firsts, &opened)
	}
	return opened, err
}

// begin makes the first segment. Where a head is there already, records were.
func (l *Log) begin(opened *Opened) (err error) {
	if l.last, err = l.before(nil); err != nil {
		return err
	}
	head, err := readNote(latestPath(l.o.Dir), latestTitle, l.public)
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case absent:
	case err != nil:
		err = fmt.Errorf("the log has no segment, and its head: %w", err)
	case head.Seq > l.last.Seq:
		err = fmt.Errorf("record %d was signed, and the log has no segment", head.Seq)
	}
	if made := l.newSegment(); made != nil {
		return made
	}
	if err == nil || absent {
		return l.signHead(l.last) // a log without one was tampered with
	}
	l.broken(opened, err)
	return nil
}

// broken has the daemon write a record of the break. It stays when the head is signed anew.
func (l *Log) broken(opened *Opened, err error) {
	opened.Broken, l.signed = sbxerr.Wrap(sbxerr.AuditBroken, "audit.open", err), Head{}
}

// openLate opens a log for which there was no room before.
func (l *Log) openLate() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return nil
	}
	opened, err := l.open()
	if err == nil {
		l.o.Log.Info("the audit log begins", "dir", l.o.Dir, "public_key", opened.PublicKey, "torn", opened.Torn, "broken", opened.Broken)
	}
	return err
}

// makeDir makes the directory of a log, or closes it to others. It may be a file system of
// its own.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o700), f.Close())
}

// goOn opens the newest segment after its last whole record, and compares that with what
// was signed.
func (l *Log) goOn(firsts []uint64, opened *Opened) error {
	first := firsts[len(firsts)-1]
	f, err := os.OpenFile(segmentPath(l.o.Dir, first), os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	last, end, err := lastRecord(f)
	if err == nil && end == 0 {
		last, err = l.before(firsts[:len(firsts)-1])
	}
	if err == nil {
		opened.Torn, err = cutAt(f, end)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.first, l.size, l.last = f, first, end, last
	l.signed, err = readNote(latestPath(l.o.Dir), latestTitle, l.public)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(firsts) == 1 && last.Seq == 0: // it was killed while it was made
		return l.signHead(last)
	case err != nil:
		err = fmt.Errorf("the head of the log: %w", err)
	case last.Seq < l.signed.Seq:
		err = fmt.Errorf("record %d was signed, and the last that is there is %d", l.signed.Seq, last.Seq)
	case last.Seq == l.signed.Seq && last.Hash != l.signed.Hash:
		err = fmt.Errorf("record %d is not the one that was signed", last.Seq)
	}
	start, startErr := readNote(startPath(l.o.Dir), startTitle, l.public)
	if err == nil && startErr == nil && last.Seq < start.Seq {
		err = fmt.Errorf("the records up to %d were removed by retention, and the last that is there is %d", start.Seq, last.Seq)
	}
	if err != nil {
		l.broken(opened, err)
	}
	return nil
}

// before is the place before a segment without a record.
func (l *Log) before(older []uint64) (Head, error) {
	if len(older) == 0 {
		start, err := readNote(startPath(l.o.Dir), startTitle, l.public)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return start, err
	}
	f, err := owndir.Open(segmentPath(l.o.Dir, older[len(older)-1]))
	if err != nil {
		return Head{}, err
	}
	defer f.Close()
	last, _, err := lastRecord(f)
	return last, err
}

// cutAt cuts what follows the last whole record, and returns how much that was.
func cutAt(f *os.File, end int64) (cut int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == end {
		return 0, err
	}
	return size - end, f.Truncate(end)
}

// newSegment begins a segment after the last record.
func (l *Log) newSegment() error {
	first := l.last.Seq + 1
	f, err := os.OpenFile(segmentPath(l.o.Dir, first), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	l.file, l.first, l.size = f, first, 0
	return nil
}

// Required reports whether work must not begin unless its record is written.
func (l *Log) Required() bool { return l.o.Required }

// Record appends a JSON object, which is one line. When it returns nil, the record
// survives the end of this process. Work says that something begins with the record, and
// must not if there is an error: where records are required, what room is left on a full
// disk is for the records of work that began before.
func (l *Log) Record(object []byte, work bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.recordLocked(object, work)
	if err != nil {
		l.failed++
		return sbxerr.Wrap(sbxerr.AuditWrite, "audit.record", err)
	}
	l.written++
	return nil
}

func (l *Log) recordLocked(object []byte, work bool) error {
	if l.low && work && l.o.Required {
		return errors.New("the disk of the audit log is full")
	}
	if l.file == nil {
		return errors.New("the disk of the audit log was full when it was to be opened")
	}
	seq := l.last.Seq + 1
	l.buf = appendRecord(l.buf[:0], seq, l.last.Hash, object)
	if len(l.buf) > MaxRecord {
		return fmt.Errorf("the record has %d bytes, at most %d", len(l.buf), MaxRecord)
	}
	if l.size > 0 && l.size+int64(len(l.buf)) > l.o.SegmentBytes {
		if err := l.rotateLocked(); err != nil {
			return err
		}
	}
	err := l.appendLocked()
	if errors.Is(err, syscall.ENOSPC) && l.useReserveLocked() && !(work && l.o.Required) {
		err = l.appendLocked()
	}
	if err != nil {
		return err
	}
	l.last = Head{seq, sha256.Sum256(l.buf[:len(l.buf)-1])}
	return nil
}

// appendLocked writes the record in l.buf, or nothing of it.
func (l *Log) appendLocked() error {
	if l.torn {
		if err := l.file.Truncate(l.size); err != nil {
			return err
		}
		l.torn = false
	}
	if _, err := l.file.Write(l.buf); err != nil {
		l.torn = true
		if cut := l.file.Truncate(l.size); cut == nil {
			l.torn = false
		}
		return err
	}
	l.size += int64(len(l.buf))
	return nil
}

// rotateLocked seals the segment and begins the next.
func (l *Log) rotateLocked() error {
	old, first := l.file, l.first
	if err := unix.Fdatasync(int(old.Fd())); err != nil {
		return err
	}
	if err := writeNote(headPath(l.o.Dir, first), sealedTitle, l.last, l.signer); err != nil {
		return err
	}
	if err := l.newSegment(); err != nil {
		return err
	}
	l.o.Log.Info("audit segment sealed", "records", l.last.Seq, "hash", l.last.Hash.String())
	return old.Close()
}

// useReserveLocked frees what is kept for a full disk, and reports whether there was some.
func (l *Log) useReserveLocked() bool {
	if l.low {
		return false
	}
	l.low = true
	l.o.Log.Error("the disk of the audit log is full", "dir", l.o.Dir, "required", l.o.Required)
	return owndir.Unlink(reservePath(l.o.Dir)) == nil
}

// fillReserve keeps room for a full disk, again if it was used.
func (l *Log) fillReserve() {
	f, err := os.OpenFile(reservePath(l.o.Dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, reserveBytes), f.Close())
	}
	if errors.Is(err, syscall.EOPNOTSUPP) { // the file system cannot tell: it counts when it is full
		err = nil
	}
	if err != nil {
		_ = owndir.Unlink(reservePath(l.o.Dir)) // a part of it is of no use
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.low && err == nil {
		l.o.Log.Info("the disk of the audit log has room again", "dir", l.o.Dir)
	}
	l.low = err != nil
}

// Counts returns how many records were written since Open, and how many could not be.
func (l *Log) Counts() (written, failed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written, l.failed
}

// Newest returns the number of the newest record, 0 for none.
func (l *Log) Newest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Seq
}

// Blocks reports whether work is refused because its record cannot be written.
func (l *Log) Blocks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o.Required && (l.low || l.torn)
}

// Close signs the last head. Nothing may be recorded after that.
func (l *Log) Close() error {
	close(l.stop)
	<-l.done
	err := l.signNow()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	l.o.Log.Info("audit log closed", "records", l.last.Seq, "hash", l.last.Hash.String())
	return sbxerr.Wrap(sbxerr.AuditWrite, "audit.close", errors.Join(err, l.file.Close()))
}
