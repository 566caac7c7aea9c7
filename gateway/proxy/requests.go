package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// requests reads what an HTTP/1 client sends: where each request of a connection ends
// and the next one begins. None passes that names another host, or that servers may
// read in more than one way.
type requests struct {
	check   func(host string, err error) error // of a head: it names host, or is wrong
	passed  func(head)                         // is told of each head that passes
	hold    func() bool                        // takes a place for a head that is not whole, if there is one in time
	release func()

	part     part
	text     []byte // of a head, or of a line between chunks; nil where none has begun
	begun    int    // texts that were not whole at once
	held     bool   // a place
	left     int64  // bytes of the body, of the chunk, or of what trailers may be
	served   int    // heads that passed
	kept     string // a head that does not pass on this connection: see atNew
	changing string // how the status of the answer begins with which the protocol changes
}

// part is where in a request the client is.
type part int

const (
	inHead     part = iota
	inBody          // of known length
	inSize          // the line before a chunk
	inChunk         //
	afterChunk      // its line end
	inTrailer       // the lines after the last chunk
	atChange        // the answer says whether what follows is HTTP/1 still
	atNew           // the next head may change the protocol, which only a first one can: later answers are not looked at
)

// maxSizeLine bounds the line before a chunk, in bytes: 15 digits and a line end.
const maxSizeLine = 17

// pass gives out what may go on of b. It returns what has to wait for the answer to a
// request for another protocol, or for another connection.
func (q *requests) pass(b []byte, out func([]byte) error) (rest []byte, err error) {
	for len(b) > 0 && q.part != atChange && q.part != atNew {
		n, err := q.step(b, out)
		if err != nil {
			return nil, err
		}
		b = b[n:]
	}
	if q.part == atNew {
		return append([]byte(q.kept), b...), nil
	}
	return b, nil
}

// step takes n bytes of b.
func (q *requests) step(b []byte, out func([]byte) error) (n int, err error) {
	if q.part == inBody || q.part == inChunk {
		n = int(min(int64(len(b)), q.left))
		if q.left -= int64(n); q.left == 0 {
			q.afterData()
		}
		return n, out(b[:n])
	}
	end, most := lineEnd, maxPeek
	switch q.part {
	case inHead:
		if n := q.emptyLine(b); n > 0 {
			return n, nil
		}
		end = lineEnd + lineEnd
	case inSize:
		most = maxSizeLine
	case afterChunk:
		most = len(lineEnd)
	}
	n, whole, err := q.gather(b, end, most)
	if err != nil || !whole {
		return n, err
	}
	text := q.text
	q.end()
	passes, err := q.read(string(text))
	switch {
	case err != nil || passes == "":
		return n, err
	case len(passes) < len(text):
		text = []byte(passes)
	}
	return n, out(text)
}

// emptyLine is how much of b is the rest of an empty line before a head, of which nothing
// passes: some clients end a body with one (RFC 9112, 2.2).
func (q *requests) emptyLine(b []byte) int {
	if len(q.text) >= len(lineEnd) { // a long one is not copied for each segment
		return 0
	}
	rest, begun := strings.CutPrefix(lineEnd, string(q.text))
	if !begun || rest == "" || !bytes.HasPrefix(b, []byte(rest)) {
		return 0
	}
	q.end()
	return len(rest)
}

// gather adds to the text up to its end.
func (q *requests) gather(b []byte, end string, most int) (n int, whole bool, err error) {
	before := len(q.text)
	fresh := q.text == nil
	q.text = append(q.text, b[:min(len(b), most-before)]...)
	from := max(0, before-len(end)+1)
	if at := bytes.Index(q.text[from:], []byte(end)); at >= 0 {
		q.text = q.text[:from+at+len(end)]
		return len(q.text) - before, true, nil
	}
	if fresh {
		q.begun++
	}
	if fresh && q.part == inHead {
		if q.held = q.hold(); !q.held {
			return 0, false, q.check("", errTooMany)
		}
	}
	if len(q.text) == most {
		return 0, false, q.check("", fmt.Errorf("a part of the HTTP request is longer than %d bytes", most))
	}
	return len(b), false, nil
}

// end gives back what is held for a text.
func (q *requests) end() {
	q.text = nil
	if q.held {
		q.release()
	}
	q.held = false
}

// read takes a text that is whole, and refuses one that may not pass. It returns what of it
// does.
func (q *requests) read(text string) (passes string, err error) {
	switch q.part {
	case inHead:
		return q.readHead(text)
	case inSize:
		err = q.readSize(strings.TrimSuffix(text, lineEnd))
	case afterChunk:
		q.part = inSize // the text is as long as a line end, and has one
	default:
		err = q.readTrailer(text)
	}
	if err != nil {
		return "", q.check("", err)
	}
	return text, nil
}

func (q *requests) readHead(text string) (passes string, err error) {
	h, host, err := readHead(text)
	if err := q.check(host, err); err != nil {
		return "", err
	}
	length, chunked, err := h.body()
	if err != nil {
		return "", q.check("", err)
	}
	if h.changes() && q.served > 0 {
		q.part, q.kept = atNew, text
		return "", nil
	}
	if q.changing = ""; h.changes() {
		q.changing = "101"
		if h.method == http.MethodConnect {
			q.changing = "2"
		}
	}
	q.served++
	q.passed(h)
	switch {
	case chunked:
		q.part = inSize
	case length > 0:
		q.part, q.left = inBody, length
	default:
		q.next()
	}
	return h.withoutHTTP2(text), nil
}

// readSize takes the line before a chunk: digits, and nothing else. Extensions are what
// servers disagree on (RFC 9112, 7.1.1).
func (q *requests) readSize(line string) error {
	n, err := strconv.ParseUint(line, 16, 60)
	if err != nil || strings.Trim(line, "0123456789abcdefABCDEF") != "" {
		return fmt.Errorf("the HTTP request has a chunk of the size %s", quote(line))
	}
	if q.part, q.left = inChunk, int64(n); n == 0 {
		q.part, q.left = inTrailer, maxPeek
	}
	return nil
}

func (q *requests) readTrailer(line string) error {
	if q.left -= int64(len(line)); q.left < 0 {
		return errors.New("the HTTP request has long trailers")
	}
	if line == lineEnd {
		q.next()
		return nil
	}
	name, _, err := parseField(strings.TrimSuffix(line, lineEnd))
	if err != nil {
		return err
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding":
		return fmt.Errorf("the HTTP request has a trailer %s (RFC 9110, 6.5.1)", quote(name))
	}
	return nil
}

// afterData is told that a body or a chunk is whole.
func (q *requests) afterData() {
	if q.part == inChunk {
		q.part = afterChunk
		return
	}
	q.next()
}

// next is told that a request is whole.
func (q *requests) next() {
	q.part = inHead
	if q.changing != "" {
		q.part = atChange
	}
}

// answered says what follows a request for another protocol, of which the answer begins
// with line: HTTP/1 still, or something that nobody here reads.
func (q *requests) answered(line []byte) (changed bool) {
	status, found := bytes.CutPrefix(line, []byte("HTTP/1."))
	changed = found && len(status) > 2 && bytes.HasPrefix(status[2:], []byte(q.changing))
	q.part, q.changing = inHead, ""
	return changed
}
