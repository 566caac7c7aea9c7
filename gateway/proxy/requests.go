package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// requests reads the heads of what a client asks by plain HTTP, one after the other.
type requests struct {
	p     *Proxy
	f     *flow
	conn  *routeConn // the client
	tape  tape
	in    *bufio.Reader
	begun bool // the first head, which was whole when the host was looked for, is read
}

// requestsOf reads what the client of f says after, and with, what it said already.
func (p *Proxy) requestsOf(f *flow, said []byte) *requests {
	q := &requests{p: p, f: f, conn: &routeConn{TCPConn: f.client, heard: said}}
	q.tape = tape{Conn: q.conn, off: true}
	q.in = bufio.NewReader(&q.tape)
	return q
}

// next waits for the next request. Its error is io.EOF where the client is done, a lostError of
// the connection, or the refusal of the request.
func (q *requests) next() (*http.Request, error) {
	for {
		if _, err := q.in.Peek(1); err != nil {
			return nil, lost(err)
		}
		if r, err := q.head(); r != nil || err != nil {
			return r, err
		}
	}
}

// head reads a head that has begun, or an empty line, for which it returns nil.
func (q *requests) head() (*http.Request, error) {
	if text, _ := q.in.Peek(q.in.Buffered()); q.begun && !bytes.Contains(text, []byte(lineEnd+lineEnd)) {
		if !q.p.holdHead(q.f) {
			return nil, q.p.matches(q.f, "", errTooMany)
		}
		defer func() { <-q.p.heads }()
		if err := q.conn.SetReadDeadline(time.Now().Add(q.p.config.Limits.Peek)); err != nil {
			return nil, lost(err)
		}
		defer func() { _ = q.conn.SetReadDeadline(time.Time{}) }() // what fails here has failed the next read, too
	}
	if emptyLine(q.in) {
		return nil, nil
	}
	q.begun = true
	r, host, err := q.read()
	if errors.As(err, new(lostError)) || errors.Is(err, io.EOF) {
		return nil, err
	}
	return r, q.p.matches(q.f, host, err)
}

// read has all of a head on the tape, and no more than that.
func (q *requests) read() (r *http.Request, host string, err error) {
	text, _ := q.in.Peek(q.in.Buffered())
	_, _ = q.tape.kept.Write(text)
	q.tape.off, q.tape.failed = false, nil
	r, host, err = readRequest(&q.tape, q.in)
	q.tape.off, q.tape.kept = true, bytes.Buffer{}
	switch failed := q.tape.failed; {
	case err == nil || failed == nil:
	case errors.Is(failed, os.ErrDeadlineExceeded):
		err = q.p.silence(failed, unfinished)
	default:
		err = lost(failed)
	}
	return r, host, err
}

// unread is what c said and nobody has read: in holds the first of it.
func unread(in *bufio.Reader, c *routeConn) []byte {
	text, _ := in.Peek(in.Buffered())
	return append(bytes.Clone(text), c.heard...)
}

// lostError is that of a connection, and says nothing of a request.
type lostError struct{ error }

func lost(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return lostError{err}
}
