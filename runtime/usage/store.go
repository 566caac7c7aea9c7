package usage

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

// Store keeps the Series of sandboxes in a directory, one file of at most 200 KiB each. Its
// methods may be called at the same time.
type Store struct {
	Dir string        // is there, and belongs to the Store alone
	Max int           // files; 0 keeps none
	Age time.Duration // after which a file goes

	mu sync.Mutex
}

// maxFile bounds a file that is read, in bytes: a full Series takes 100 KiB at most.
const maxFile = 200 << 10

// kept is the second part of a file, after what the caller says of it.
type kept struct {
	Before Point
	Levels [len(levels)][]Point // the oldest first
}

// Put keeps s under id, with about, which JSON can hold. It drops what is too old, and the
// oldest where there are too many.
func (t *Store) Put(id string, about any, s *Series) error {
	if t.Max == 0 {
		return nil
	}
	k := kept{Before: s.before}
	for i := range s.rings {
		k.Levels[i] = s.rings[i].all()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	path := filepath.Join(t.Dir, id)
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		to := json.NewEncoder(f)
		err = errors.Join(to.Encode(about), to.Encode(k), f.Close())
	}
	if err == nil {
		err = owndir.Rename(tmp, id)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "usage.put", errors.Join(err, t.pruneLocked()))
}

// Get reads what is kept under id. The error matches fs.ErrNotExist where there is nothing.
func (t *Store) Get(id string, about any) (*Series, error) {
	s := &Series{}
	err := t.read(id, func(from *json.Decoder) error {
		var k kept
		if err := errors.Join(from.Decode(about), from.Decode(&k)); err != nil {
			return err
		}
		s.before = k.Before
		for i, points := range k.Levels {
			s.rings[i].points = points[max(0, len(points)-levels[i].keep):]
		}
		return nil
	})
	return s, err
}

// Each calls fn with the id of all that is kept, the newest first, and a function that
// decodes what its caller said of it, until fn returns false.
func (t *Store) Each(fn func(id string, about func(any) error) (more bool)) error {
	if t.Max == 0 {
		return nil
	}
	files, err := t.list()
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "usage.list", err)
	}
	for _, f := range slices.Backward(files) {
		about := func(to any) error {
			return t.read(f.Name(), func(from *json.Decoder) error { return from.Decode(to) })
		}
		if !fn(f.Name(), about) {
			break
		}
	}
	return nil
}

// errNone is for a Store that keeps nothing.
var errNone = sbxerr.Wrap(sbxerr.StateDir, "usage.read", fs.ErrNotExist)

func (t *Store) read(id string, decode func(*json.Decoder) error) error {
	if t.Max == 0 {
		return errNone
	}
	f, err := owndir.Open(filepath.Join(t.Dir, id))
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "usage.read", err)
	}
	err = errors.Join(decode(json.NewDecoder(io.LimitReader(f, maxFile))), f.Close())
	return sbxerr.Wrap(sbxerr.StateDir, "usage.read", err)
}

// list returns the files that are not too old, the oldest first.
func (t *Store) list() (files []fs.FileInfo, err error) {
	err = t.each(func(f fs.FileInfo) {
		if filepath.Ext(f.Name()) == "" && time.Since(f.ModTime()) <= t.Age {
			files = append(files, f)
		}
	})
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files, err
}

func (t *Store) each(fn func(fs.FileInfo)) error {
	entries, err := os.ReadDir(t.Dir)
	for _, e := range entries {
		if f, err := e.Info(); err == nil { // else it was dropped meanwhile
			fn(f)
		}
	}
	return err
}

// pruneLocked drops all but the newest Max files. What was half written goes too.
func (t *Store) pruneLocked() error {
	files, err := t.list()
	errs := []error{err}
	keep := map[string]bool{}
	for _, f := range files[max(0, len(files)-t.Max):] {
		keep[f.Name()] = true
	}
	errs = append(errs, t.each(func(f fs.FileInfo) {
		if !keep[f.Name()] {
			errs = append(errs, owndir.Unlink(filepath.Join(t.Dir, f.Name())))
		}
	}))
	return errors.Join(errs...)
}

// Len is how many points s holds.
func (s *Series) Len() (n int) {
	for i := range s.rings {
		n += len(s.rings[i].points)
	}
	return n
}
