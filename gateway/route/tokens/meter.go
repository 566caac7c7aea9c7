package tokens

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"strings"
)

// bytesPerToken is what an estimate takes for the length of a token.
const bytesPerToken = 4

// Meter counts what an answer tells, as it is read.
type Meter struct {
	from   io.Reader
	scan   scanner
	events *events // nil: the answer is one document

	last   bool // the usage in the end was told
	told   told
	model  string
	passed int64 // bytes
	ended  bool  // the answer came to its end
}

// NewMeter reads from an answer of this type. Without a type that models answer in it is nil.
func NewMeter(from io.Reader, contentType string) *Meter {
	kind, _, err := mime.ParseMediaType(contentType)
	m := &Meter{from: from}
	m.scan = scanner{want: m.wants, found: m.found, parts: parts}
	switch {
	case err != nil:
		return nil
	case kind == "text/event-stream":
		m.events = &events{scan: &m.scan}
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		return nil
	}
	return m
}

// parts are the names in paths that tell something.
var parts = []string{"usage", "model", "response", "message"}

// wants reports whether a member tells something, of a document or of an event's.
func (m *Meter) wants(path string) bool {
	switch path {
	case "usage", "response.usage", "message.usage":
		return true
	case "model", "response.model", "message.model":
		return m.model == ""
	}
	return false
}

func (m *Meter) found(path string, value []byte) {
	if strings.HasSuffix(path, "model") {
		var name string
		if json.Unmarshal(value, &name) == nil && len(name) <= maxKey {
			m.model = name
		}
		return
	}
	var t told
	if json.Unmarshal(value, &t) == nil {
		m.told = m.told.more(t)
		m.last = m.last || path != "message.usage" && t != (told{})
	}
}

// Read passes on what it reads.
func (m *Meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.passed += int64(n)
	if m.events != nil {
		m.events.write(p[:n])
	} else {
		m.scan.write(p[:n])
	}
	m.ended = m.ended || err == io.EOF
	return n, err
}

// Model is the model that answered, empty if it was not told.
func (m *Meter) Model() string { return m.model }

// Count returns what the answer told. Of a stream that told nothing, and of an answer that broke
// off, it is an estimate: sent is how many bytes the request had. What is no answer of a model
// counts as nothing.
func (m *Meter) Count(sent int64) (c Count, estimated bool) {
	c = m.told.count()
	if m.last || m.ended && m.events == nil {
		return c, false
	}
	c.Input = max(c.Input, uint64(max(sent, 0))/bytesPerToken)
	if m.events != nil {
		c.Output = max(c.Output, m.events.count)
	} else {
		c.Output = max(c.Output, uint64(m.passed)/bytesPerToken)
	}
	return c, true
}

// events feeds the data of each server-sent event to a scanner, as one document
// (HTML Living Standard, 9.2).
type events struct {
	scan    *scanner
	matched int  // of prefix, in this line; -1: the line is something else
	empty   bool // nothing came in this line
	begun   bool // the first line did
	count   uint64
	data    bool // the event has some
	cr      bool // the last byte ended a line
}

const prefix = "data:"

func (e *events) write(p []byte) {
	if !e.begun {
		e.begun, e.empty = true, true
	}
	for len(p) > 0 {
		if e.cr && p[0] == '\n' { // of \r\n
			e.cr, p = false, p[1:]
			continue
		}
		e.cr = false
		n := bytes.IndexAny(p, "\r\n")
		if n < 0 {
			e.part(p)
			return
		}
		e.part(p[:n])
		e.cr = p[n] == '\r'
		e.line()
		p = p[n+1:]
	}
}

// part takes a part of a line.
func (e *events) part(p []byte) {
	e.empty = e.empty && len(p) == 0
	for len(p) > 0 && e.matched >= 0 && e.matched < len(prefix) {
		if p[0] != prefix[e.matched] {
			e.matched = -1
			return
		}
		e.matched, p = e.matched+1, p[1:]
	}
	if e.matched == len(prefix) && len(p) > 0 {
		e.data = true
		e.scan.write(p)
	}
}

// line ends one, and with an empty one the event.
func (e *events) line() {
	if e.empty {
		if e.data {
			e.count++
		}
		e.data = false
		e.scan.reset()
	} else if e.matched == len(prefix) {
		e.scan.write([]byte("\n"))
	}
	e.matched, e.empty = 0, true
}
