package tokens

import (
	"bytes"
	"strings"
)

// Bounds of what a scanner keeps.
const (
	maxValue = 16 << 10 // of a value
	maxKey   = 64
	maxDepth = 2 // of the objects whose members are looked for
)

// scanner finds members of a JSON document that comes in pieces, by the names of the objects
// around them. It keeps no more than the values that it looks for, and does not check the rest.
type scanner struct {
	found func(path string, value []byte) // a member that want has
	want  func(path string) bool
	parts []string // the names that paths are made of

	depth  int // of the open objects and arrays
	arrays int // how many of the first maxDepth of them are arrays
	names  [maxDepth]string
	isName bool // the next string is the name of a member
	over   bool // it is no document: nothing is looked for any more

	inString, escaped bool
	name              []byte // that is read; nil: none is
	spelled           [maxKey]byte
	value             []byte // that is kept; nil: none is
	valueDepth        int
	valuePath         string
}

// reset begins another document.
func (s *scanner) reset() { *s = scanner{found: s.found, want: s.want, parts: s.parts} }

// write takes the next piece.
func (s *scanner) write(p []byte) {
	for len(p) > 0 && !s.over {
		if s.inString {
			p = p[s.text(p):]
			continue
		}
		s.sign(p[0])
		p = p[1:]
	}
}

// text takes a part of a string, and returns its length.
func (s *scanner) text(p []byte) int {
	if s.escaped {
		s.escaped = false
		s.keep(p[:1])
		s.name = nil // a name with an escape is none that is looked for
		return 1
	}
	n := bytes.IndexAny(p, `"\`)
	if n < 0 {
		s.keep(p)
		s.spell(p)
		return len(p)
	}
	s.keep(p[:n+1])
	s.spell(p[:n])
	if p[n] == '\\' {
		s.escaped = true
		return n + 1
	}
	s.inString = false
	switch {
	case s.isName:
		s.isName = false
		s.named()
	case s.value != nil && s.depth == s.valueDepth:
		s.end()
	}
	return n + 1
}

// spell takes a part of a name.
func (s *scanner) spell(p []byte) {
	if s.name == nil {
		return
	}
	if len(s.name)+len(p) > maxKey {
		s.name = nil
		return
	}
	s.name = append(s.name, p...)
}

func (s *scanner) named() {
	if s.depth <= maxDepth {
		s.names[s.depth-1] = ""
		for _, name := range s.parts {
			if string(s.name) == name {
				s.names[s.depth-1] = name
			}
		}
	}
	s.name = nil
}

// keep takes a part of a value.
func (s *scanner) keep(p []byte) {
	if s.value == nil {
		return
	}
	if len(s.value)+len(p) > maxValue {
		s.value = nil
		return
	}
	s.value = append(s.value, p...)
}

// sign takes a byte between strings.
func (s *scanner) sign(c byte) {
	if c == '"' && s.isName {
		s.name = s.spelled[:0]
	} else if c == '"' || c == '{' {
		s.begin()
	}
	s.keep([]byte{c})
	switch c {
	case '"':
		s.inString = true
	case '{', '[':
		s.open(c)
	case '}', ']':
		s.close(c)
	case ',':
		s.isName = s.depth > 0 && s.depth <= maxDepth && s.arrays == 0
	case ':':
		s.isName = false
	}
}

func (s *scanner) open(c byte) {
	s.depth++
	if s.depth <= maxDepth {
		if c == '[' {
			s.arrays++
		}
		s.names[s.depth-1] = ""
	}
	s.isName = c == '{' && s.depth <= maxDepth && s.arrays == 0
}

func (s *scanner) close(c byte) {
	if s.depth == 0 {
		s.over = true
		return
	}
	if c == ']' && s.depth <= maxDepth {
		s.arrays--
	}
	s.over = s.arrays < 0
	s.depth--
	s.isName = false
	if s.value != nil && s.depth == s.valueDepth {
		s.end()
	}
}

// begin keeps the value that comes, if it is looked for.
func (s *scanner) begin() {
	if s.value != nil || s.depth == 0 || s.depth > maxDepth || s.arrays > 0 {
		return
	}
	if s.names[s.depth-1] == "" {
		return
	}
	path := strings.Join(s.names[:s.depth], ".")
	if s.want(path) {
		s.value, s.valueDepth, s.valuePath = make([]byte, 0, 256), s.depth, path
	}
}

func (s *scanner) end() {
	value := s.value
	s.value = nil
	s.found(s.valuePath, value)
}
