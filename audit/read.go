package audit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"time"

	"github.com/caisson-run/caisson/owndir"
)

// Record is one record that is read.
type Record struct {
	Seq  uint64
	Line []byte // all of it, without the newline; valid until the next one is read
}

// Records are the records in dir from the number from on, in order. The error is the last
// of them. What is torn at the end is none.
func Records(dir string, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		firsts, err := segments(dir)
		if err != nil {
			yield(Record{}, forbidden(err))
			return
		}
		for i, first := range firsts {
			if i+1 < len(firsts) && firsts[i+1] <= from {
				continue
			}
			more, err := readSegment(segmentPath(dir, first), from, yield)
			if err != nil {
				yield(Record{}, forbidden(err))
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// readSegment reports whether yield wants more.
func readSegment(path string, from uint64, yield func(Record, error) bool) (more bool, err error) {
	f, err := owndir.Open(path)
	if errors.Is(err, os.ErrNotExist) { // retention was faster
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, MaxRecord)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		line = line[:len(line)-1]
		if seq, _, ok := splitRecord(line); ok && seq >= from && !yield(Record{seq, line}, nil) {
			return false, nil
		}
	}
}

// Last returns the number of the newest record, 0 for none.
func Last(dir string) (uint64, error) {
	firsts, err := segments(dir)
	if err != nil {
		return 0, forbidden(err)
	}
	if len(firsts) == 0 {
		return 0, nil
	}
	first := firsts[len(firsts)-1]
	f, err := owndir.Open(segmentPath(dir, first))
	if err != nil {
		return 0, forbidden(err)
	}
	defer f.Close()
	last, end, err := lastRecord(f)
	if end == 0 {
		return first - 1, err
	}
	return last.Seq, err
}

// FollowInterval is how often a follower looks for more.
const FollowInterval = 200 * time.Millisecond

// Follow calls yield with the records from the number from on, and with those that are
// written later, until ctx ends or yield returns an error.
func Follow(ctx context.Context, dir string, from uint64, yield func(Record) error) error {
	c := NewCursor(dir, from)
	defer c.Close()
	for {
		r, found, err := c.Next()
		if err == nil && found {
			err = yield(r)
		}
		if err != nil {
			return err
		}
		if found {
			continue
		}
		select {
		case <-time.After(FollowInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
