package traffic

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/owndir"
)

// maxFile is where a file of entries is put aside for a new one, in bytes.
const maxFile = 512 << 10

// ring is a file of lines that does not grow for ever: a full one is put aside for a
// new one, and takes the place of the one that was put aside before. A position in it
// is a number of bytes: of all that was ever written before.
type ring struct{ path string }

// file is one of the two of a ring.
type file struct {
	path   string
	size   int64
	from   int64   // the position at which it begins
	before *Counts // what the entries before it come to; nil if there are none
	torn   bool    // its first line is none, as a loss of power can leave it
}

// unknown are the counts of entries of which nothing is known but that they were there:
// connections may have been among them.
var unknown = Counts{Allowed: 1}

// line is one of a file: an entry, or as the first of a file that follows another one,
// what all entries before it come to.
type line struct {
	Entry
	Before *Counts `json:"before,omitempty"`
	From   int64   `json:"from,omitempty"` // see file; 0 in what earlier daemons wrote
}

// Older is where the older half of the entries lies, by the path of the newer.
func Older(entries string) string { return entries + ".1" }

// files are those that are there and hold something, the older first.
func (r ring) files() ([]file, error) {
	var list []file
	for _, path := range []string{Older(r.path), r.path} {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		first, torn, err := head(path)
		if err != nil {
			return nil, err
		}
		f := file{path: path, size: info.Size(), from: first.From, before: first.Before, torn: torn}
		if torn {
			f.before = &unknown
		}
		switch {
		case f.from > 0: // it says so
			if len(list) > 0 && list[0].torn {
				list[0].from = f.from - list[0].size
			}
		case len(list) > 0:
			f.from = list[0].end()
		case f.before != nil:
			f.from = 1 // an earlier daemon wrote it: it is not the first one
		}
		list = append(list, f)
	}
	return list, nil
}

// end is the position after the last byte of f.
func (f file) end() int64 { return f.from + f.size }

// head is the first line of the file at path, empty where that is an entry, or torn.
func head(path string) (_ line, torn bool, err error) {
	for text, err := range lines(path, 0) {
		var first line
		if err != nil || json.Unmarshal(text, &first) != nil {
			return line{}, err == nil, err
		}
		return line{Before: first.Before, From: first.From}, false, nil
	}
	return line{}, true, nil
}

// add appends an entry.
func (r ring) add(e Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	first, err := r.rotate()
	return errors.Join(err, appendLines(r.path, append(append(first, text...), '\n')))
}

// rotate puts a full file aside, and returns what a new one begins with.
func (r ring) rotate() ([]byte, error) {
	if info, err := os.Lstat(r.path); err == nil && info.Size() > 0 && info.Size() < maxFile {
		return nil, nil
	}
	list, err := r.files()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	c, err := total(list)
	if err != nil {
		return nil, err
	}
	last := list[len(list)-1]
	if last.path == r.path {
		if err := owndir.Rename(r.path, filepath.Base(Older(r.path))); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(struct {
		Before Counts `json:"before"`
		From   int64  `json:"from"`
	}{c, last.end()})
	return append(text, '\n'), err
}

// end is the position after the last entry.
func (r ring) end() (int64, error) {
	list, err := r.files()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[len(list)-1].end(), nil
}

// read calls do with each entry after the position at, and with the position after that
// entry. It returns the position after the last one. Where entries after at were dropped, gone is what all before the first
// that is left come to; else it is nil. A torn last line, of a daemon that was killed,
// does not count.
func (r ring) read(at int64, do func(e Entry, to int64)) (to int64, gone *Counts, err error) {
	list, err := r.files()
	if err != nil {
		return at, nil, err
	}
	if len(list) > 0 && at < list[0].from {
		gone = list[0].before
	}
	for _, f := range list {
		at = max(at, f.from)
		for text, err := range lines(f.path, at-f.from) {
			if err != nil {
				return at, gone, err
			}
			at += int64(len(text)) + 1
			var l line
			if json.Unmarshal(text, &l) == nil && l.Before == nil {
				do(l.Entry, at)
			}
		}
	}
	return at, gone, nil
}

// counts is what all entries that there ever were come to.
func (r ring) counts() (Counts, error) {
	list, err := r.files()
	if err != nil {
		return Counts{}, err
	}
	return total(list)
}

// total is what the entries of list and all before it come to, as far as that is known:
// the last file says it, unless it is torn.
func total(list []file) (sum Counts, err error) {
	if n := len(list); n > 1 && !list[n-1].torn {
		list = list[n-1:]
	}
	for _, f := range list {
		c, err := count(f.path)
		if err != nil {
			return sum, err
		}
		sum = sum.plus(c)
	}
	return sum, nil
}

// count is what the entries of the file at path and all before it come to.
func count(path string) (Counts, error) {
	var c Counts
	for text, err := range lines(path, 0) {
		var l line
		switch {
		case err != nil:
			return c, err
		case json.Unmarshal(text, &l) != nil:
		case l.Before != nil:
			c = *l.Before
		default:
			c.add(l.Entry)
		}
	}
	return c, nil
}
