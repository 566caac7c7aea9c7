package mcp

import (
	"bytes"
	"encoding/json"
)

// idFinder finds the ID of a message that no parser takes: it is too long, or breaks off. It
// looks for "id" among the members of the outermost object, and keeps only that.
type idFinder struct {
	depth    int
	inString bool
	escaped  bool
	text     []byte // how the last string begins
	taking   bool   // what follows is the value of "id"
	value    []byte
	id       json.RawMessage
}

// maxID bounds an ID, in bytes.
const maxID = 256

// feed reads on.
func (f *idFinder) feed(b []byte) {
	for _, c := range b {
		if f.inString {
			f.inText(c)
		} else {
			f.outside(c)
		}
		if f.id != nil {
			return
		}
	}
}

func (f *idFinder) inText(c byte) {
	f.take(c)
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.inString = false
		return
	}
	if len(f.text) <= len("id") {
		f.text = append(f.text, c)
	}
}

func (f *idFinder) outside(c byte) {
	switch c {
	case '"':
		f.inString, f.text = true, nil
	case '{', '[':
		f.depth++
	case '}', ']', ',':
		if f.depth == 1 {
			f.end()
		}
		if c != ',' {
			f.depth--
		}
		return
	case ':':
		if f.depth == 1 && string(f.text) == "id" {
			f.taking, f.value, f.text = true, nil, nil
			return
		}
	}
	f.take(c)
}

func (f *idFinder) take(c byte) {
	if f.taking && len(f.value) <= maxID {
		f.value = append(f.value, c)
	}
}

// end is told that a member is over.
func (f *idFinder) end() {
	if v := bytes.TrimSpace(f.value); f.taking && len(v) <= maxID && json.Valid(v) && bytes.ContainsAny(v[:1], `"-0123456789`) {
		f.id = json.RawMessage(v)
	}
	f.taking = false
}

// found is the ID, nil if there is none.
func (f *idFinder) found() json.RawMessage { return f.id }
