// Package journal keeps the last value of each of many small things in one
// file: a line for each change, appended in one write(2), which costs a
// microsecond where replacing a file costs a hundred.
//
// A process that is killed leaves whole lines and at most one that is torn,
// whose Put never returned: Load drops it. The file is not synced: its content is void
// after a reboot anyway.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// slack is how many lines may be out of date, beside as many as there are
// values, before the file is written anew.
const slack = 256

// maxSize bounds a journal that is read, in bytes: more is not ours.
const maxSize = 1 << 30

// Journal is one file. It is safe for concurrent use. There is one for a path.
type Journal[V any] struct {
	path string

	mu    sync.Mutex
	file  *os.File // nil before the first change
	size  int64    // of what is whole
	lines int
	known map[uint32]struct{} // what has a value
}

// line is one change; no value says that the thing is gone.
type line[V any] struct {
	Number uint32 `json:"number"`
	Value  *V     `json:"value,omitempty"`
}

// Create makes the file, which must not be there. Errors are [sbxerr.StateDir]
// here and below.
func Create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	return sbxerr.Wrap(sbxerr.StateDir, "journal.create", err)
}

// New returns the journal at path, which Create made. The file is opened with
// the first change.
func New[V any](path string) *Journal[V] {
	return &Journal[V]{path: path, known: map[uint32]struct{}{}}
}

// Load returns the last values. Call it before any change. A whole line of another form is
// an error.
func (j *Journal[V]) Load() (map[uint32]V, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	values, err := j.load()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "journal.load", fmt.Errorf("read %q: %w", j.path, err))
	}
	for n := range values {
		j.known[n] = struct{}{}
	}
	return values, nil
}

func (j *Journal[V]) load() (map[uint32]V, error) {
	data, err := owndir.ReadFile(j.path, maxSize)
	if err != nil {
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if len(whole) < len(data) {
		if err := truncate(j.path, int64(len(whole))); err != nil {
			return nil, err
		}
	}
	values := map[uint32]V{}
	j.size, j.lines = int64(len(whole)), 0
	for text := range bytes.Lines(whole) {
		j.lines++
		var l line[V]
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", j.lines, err)
		}
		if l.Value == nil {
			delete(values, l.Number)
			continue
		}
		values[l.Number] = *l.Value
	}
	return values, nil
}

// Put makes v the value of the thing with this number. After an error it has
// the value that it had.
func (j *Journal[V]) Put(number uint32, v V) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.append(line[V]{Number: number, Value: &v}); err != nil {
		return err
	}
	j.known[number] = struct{}{}
	return nil
}

// Drop forgets the thing with this number. That there is none is no error.
func (j *Journal[V]) Drop(number uint32) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.known[number]; !ok {
		return nil
	}
	if err := j.append(line[V]{Number: number}); err != nil {
		return err
	}
	delete(j.known, number)
	if j.lines > slack+2*len(j.known) {
		return sbxerr.Wrap(sbxerr.StateDir, "journal.compact", j.compact())
	}
	return nil
}

func (j *Journal[V]) append(l line[V]) error {
	const op = "journal.append"
	b, err := json.Marshal(l)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	if j.file == nil {
		if j.file, err = openOwn(j.path); err != nil {
			return sbxerr.Wrap(sbxerr.StateDir, op, err)
		}
	}
	if _, err := j.file.WriteAt(append(b, '\n'), j.size); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, j.file.Truncate(j.size))) // the disk may be full in mid-line
	}
	j.size += int64(len(b)) + 1
	j.lines++
	return nil
}

// openOwn opens path without following a link.
func openOwn(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
}

func truncate(path string, size int64) error {
	f, err := openOwn(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// compact replaces the file by one that holds the last values only.
func (j *Journal[V]) compact() (err error) {
	values, err := j.load()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for n, v := range values {
		text, err := json.Marshal(line[V]{Number: n, Value: &v})
		if err != nil {
			return err
		}
		b.Write(append(text, '\n'))
	}
	next := Next(j.path)
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	size := int64(b.Len())
	if _, err := io.Copy(f, &b); err != nil {
		return errors.Join(err, f.Close(), owndir.Remove(next))
	}
	if err := owndir.Rename(next, filepath.Base(j.path)); err != nil {
		return errors.Join(err, f.Close(), owndir.Remove(next))
	}
	err = j.file.Close()
	j.file, j.size, j.lines = f, size, len(values)
	return err
}

// Next is the file that stands beside the one at path while that is written
// anew.
func Next(path string) string { return path + ".new" }

// Close releases the file, which stays. A change after it opens it again.
func (j *Journal[V]) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return sbxerr.Wrap(sbxerr.StateDir, "journal.close", err)
}
