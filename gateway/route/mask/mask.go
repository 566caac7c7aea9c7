// Package mask replaces texts in what streams past by as many asterisks, so that lengths
// stay right. A text is found however the stream is cut. The result is that of
// strings.NewReplacer with the longest text first.
package mask

import (
	"bytes"
	"cmp"
	"io"
	"slices"
)

// star stands for each byte of a masked text.
const star = '*'

// Set is the texts to mask. It is never changed, so it can be shared. A nil Set masks nothing.
type Set struct {
	texts   [][]byte // the longest first
	longest int      // bytes
}

// New returns the set of texts, which it keeps and does not copy. Empty ones are left out.
func New(texts ...[]byte) *Set {
	s := &Set{texts: slices.DeleteFunc(slices.Clone(texts), func(t []byte) bool { return len(t) == 0 })}
	slices.SortFunc(s.texts, func(a, b []byte) int { return cmp.Or(cmp.Compare(len(b), len(a)), bytes.Compare(a, b)) })
	s.texts = slices.CompactFunc(s.texts, bytes.Equal)
	if len(s.texts) > 0 {
		s.longest = len(s.texts[0])
	}
	return s
}

// And returns a set of the texts of s and of another one, which it does not copy.
func (s *Set) And(text []byte) *Set {
	if s == nil {
		return New(text)
	}
	return New(append(slices.Clone(s.texts), text)...)
}

// String returns text with all of the set masked.
func (s *Set) String(text string) string {
	if s == nil || text == "" {
		return text
	}
	b := []byte(text)
	s.scan(b, 0, true)
	return string(b)
}

// Bytes masks text in place.
func (s *Set) Bytes(text []byte) {
	if s != nil {
		s.scan(text, 0, true)
	}
}

// scan masks in b what is whole, and returns how many bytes of b are decided. The others
// may be the beginning of a text, of at least least bytes. The bytes from kept on may be that
// of any length. With final all are decided.
func (s *Set) scan(b []byte, least int, final bool) (decided, kept int) {
	found := make([]int, len(s.texts)) // where each text is next; before from: not known
	for i := range found {
		found[i] = -1
	}
	from := 0
	for {
		at, length := s.next(b, from, found)
		decided, kept = len(b), len(b)
		if !final {
			kept = s.begun(b, from, 0)
			decided = s.begun(b, from, least)
		}
		if at == len(b) || decided < at || decided == at && least == 0 {
			return decided, kept
		}
		for i := at; i < at+length; i++ {
			b[i] = star
		}
		from = at + length
	}
}

// next returns where the first text in b[from:] begins, and the length of the longest that
// begins there. Without one it is the end of b.
func (s *Set) next(b []byte, from int, found []int) (at, length int) {
	at = len(b)
	for i, text := range s.texts {
		if found[i] < from {
			found[i] = len(b)
			if n := bytes.Index(b[from:], text); n >= 0 {
				found[i] = from + n
			}
		}
		if found[i] < at {
			at, length = found[i], len(text)
		}
	}
	return at, length
}

// begun returns where the longest end of b[from:] begins that a longer text begins with. Ends
// of fewer than least bytes do not count.
func (s *Set) begun(b []byte, from, least int) int {
	first := len(b)
	for _, text := range s.texts {
		for at := max(from, len(b)-len(text)+1); at < first && len(b)-at >= least; at++ {
			n := bytes.IndexByte(b[at:first], text[0])
			if n < 0 {
				break
			}
			if at += n; len(b)-at >= least && bytes.HasPrefix(text, b[at:]) {
				first = at
			}
		}
	}
	return first
}

// readSize is how much is read at once, in bytes.
const readSize = 32 << 10

// Reader masks what it reads.
type Reader struct {
	from  io.Reader
	set   *Set
	least int

	buffer  []byte // read, and of use
	given   int    // of buffer
	decided int    // of buffer
	kept    int    // where the part of buffer begins that later bytes may make a text of
	err     error
}

// NewReader returns a reader of r in which set is masked. What may be the beginning of a text
// is held back until more comes, if it has at least least bytes: 0 holds all back. Only a
// stream whose two sides wait for each other needs more: its reader lets the first bytes
// of a text out if they come alone.
func (s *Set) NewReader(r io.Reader, least int) io.Reader {
	if s == nil || len(s.texts) == 0 {
		return r
	}
	return &Reader{from: r, set: s, least: least, buffer: make([]byte, 0, readSize+s.longest)}
}

// Read returns as soon as something is decided.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.decided == r.given {
		if r.err != nil {
			return 0, r.err
		}
		r.forget()
		have := len(r.buffer)
		n, err := r.from.Read(r.buffer[have:min(have+readSize, cap(r.buffer))])
		r.buffer, r.err = r.buffer[:have+n], err
		if n > 0 || err != nil {
			r.decided, r.kept = r.set.scan(r.buffer, r.least, err != nil)
			r.decided = max(r.decided, r.given)
		}
	}
	n := copy(p, r.buffer[r.given:r.decided])
	r.given += n
	return n, nil
}

// forget drops what is given and of no use any more.
func (r *Reader) forget() {
	drop := min(r.given, r.kept)
	r.buffer = r.buffer[:copy(r.buffer, r.buffer[drop:])]
	r.given, r.decided, r.kept = r.given-drop, r.decided-drop, r.kept-drop
}
