package audit

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/caisson-run/caisson/owndir"
)

// Cursor reads the records of a log that is being written, each of them once.
type Cursor struct {
	dir   string
	next  uint64 // number of the record that is wanted
	file  *os.File
	first uint64 // number of the first record of file
	end   int64  // offset after the last line that was read
	later uint64 // first record of the segment after file, once that is there
	r     *bufio.Reader
}

// NewCursor returns a cursor before the record with the number from.
func NewCursor(dir string, from uint64) *Cursor {
	return &Cursor{dir: dir, next: from, r: bufio.NewReaderSize(nil, MaxRecord)}
}

// Next returns the next record, or false if there is none yet. Its number is above the
// one that was wanted if records are missing, such as those that retention removed.
func (c *Cursor) Next() (Record, bool, error) {
	for {
		if c.file == nil {
			if opened, err := c.open(); err != nil || !opened {
				return Record{}, false, forbidden(err)
			}
		}
		line, err := c.readLine()
		if errors.Is(err, io.EOF) {
			more, err := c.advance()
			if err != nil || !more {
				return Record{}, false, forbidden(err)
			}
			continue
		}
		if err != nil {
			return Record{}, false, forbidden(err)
		}
		if seq, _, ok := splitRecord(line); ok && seq >= c.next {
			c.next = seq + 1
			return Record{seq, line}, true, nil
		}
	}
}

// Seek puts the cursor before the record with the number from.
func (c *Cursor) Seek(from uint64) {
	c.Close()
	c.next, c.later = from, 0
}

// Close closes the segment that is open; Next opens it again.
func (c *Cursor) Close() {
	if c.file != nil {
		_ = c.file.Close() // it was read only
		c.file = nil
	}
}

// open opens the segment that holds the next record: the newest that does not begin
// after it, or else the oldest.
func (c *Cursor) open() (bool, error) {
	firsts, err := segments(c.dir)
	if err != nil || len(firsts) == 0 {
		return false, err
	}
	first := max(firsts[0], c.later)
	for _, f := range firsts {
		if f <= c.next {
			first = max(first, f)
		}
	}
	f, err := owndir.Open(segmentPath(c.dir, first))
	if errors.Is(err, os.ErrNotExist) { // retention was faster
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.file, c.first, c.end, c.later = f, first, 0, 0
	c.r.Reset(f)
	return true, nil
}

// readLine returns a whole line without its newline. A line that is longer than a record
// is none and comes out empty. What has no newline yet is read again later.
func (c *Cursor) readLine() ([]byte, error) {
	size := 0
	for {
		part, err := c.r.ReadSlice('\n')
		size += len(part)
		switch {
		case err == nil:
			c.end += int64(size)
			if size > len(part) {
				return nil, nil
			}
			return part[:len(part)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			_, seekErr := c.file.Seek(c.end, io.SeekStart)
			c.r.Reset(c.file)
			return nil, errors.Join(err, seekErr)
		}
		return nil, err
	}
}

// advance goes on after the end of the segment, and reports whether there may be more.
// Nothing is added to a segment once the next one is there, so its end is read once more
// then.
func (c *Cursor) advance() (more bool, err error) {
	if c.later != 0 {
		c.Close()
		return true, nil
	}
	firsts, err := segments(c.dir)
	for _, f := range firsts {
		if f > c.first {
			c.later = f
			return true, err
		}
	}
	return false, err
}
