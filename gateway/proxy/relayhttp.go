package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// statusLine is how much of an answer tells its status: "HTTP/1.1 101".
	statusLine = 12
	// lastAnswer is how long the destination has to answer what came before a request
	// that is refused.
	lastAnswer = 5 * time.Second
)

// dialogue is an HTTP/1 connection whose requests are read, each.
type dialogue struct {
	requests
	told    func(error)           // of a request that is refused
	atMost  time.Duration         // for the rest of a text that has begun
	late    func() error          // the error of one that takes longer
	bounded int                   // the text whose time runs: see requests.begun; 0: none
	refusal atomic.Pointer[error] // why nothing more is taken from the client
	answer  chan []byte           // gets how the first answer begins

	ended atomic.Bool // a side has ended the connection to the server
	anew  []byte      // not nil: the client did, which was not told, and this goes to the server on another one
}

// errAnew is of a direction that is over, and does not end its other side.
var errAnew = errors.New("the client goes on with another connection")

// ask is move for the requests of client.
func (d *dialogue) ask(server, client *net.TCPConn, said []byte, s *seat) (moved int64, err error) {
	defer d.requests.end()
	due := int64(spliceAfter)
	out := func(b []byte) error {
		n, err := server.Write(b)
		if moved += int64(n); moved >= due {
			s.tend()
			due = moved + spliceAfter
		}
		return lost(err)
	}
	rest, err := d.pass(said, out)
	for err == nil {
		if err = d.bound(client); err != nil {
			break
		}
		switch d.part {
		case atNew:
			if d.anew = rest; d.ended.Swap(true) {
				d.anew = nil // the client is told already
			}
			return moved, nil // what is left of this connection are the answers
		case atChange:
			if d.answered(<-d.answer) {
				n, err := move(server, client, rest, s)
				return moved + n, err
			}
			rest, err = d.pass(rest, out)
		default:
			rest, err = d.more(client, out)
		}
	}
	var broken lostError
	switch {
	case errors.Is(err, io.EOF):
		return moved, nil
	case errors.As(err, &broken):
		return moved, broken.error
	}
	d.refuse(server, client, err)
	return moved, nil
}

// more passes what client says next.
func (d *dialogue) more(client *net.TCPConn, out func([]byte) error) (rest []byte, err error) {
	buffer, n, err := take(client)
	if buffer != nil {
		defer buffers.Put(buffer)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, d.check("", d.late())
	}
	if err != nil {
		return nil, lost(err)
	}
	rest, err = d.pass(buffer[:n], out)
	return bytes.Clone(rest), err
}

// bound gives client its time to finish a text that it has begun.
func (d *dialogue) bound(client *net.TCPConn) error {
	now := d.begun
	if d.text == nil {
		now = 0
	}
	if now == d.bounded {
		return nil
	}
	d.bounded = now
	var until time.Time
	if now > 0 {
		until = time.Now().Add(d.atMost)
	}
	return lost(client.SetReadDeadline(until))
}

// refuse takes nothing more from client. The server is told that this was all, and the
// client is told why when it has the answers to what came before.
func (d *dialogue) refuse(server, client *net.TCPConn, why error) {
	d.refusal.Store(&why)
	d.told(why)
	until := time.Now().Add(lastAnswer)
	_ = server.SetReadDeadline(until) // what fails here has failed the answers, too
	_ = server.CloseWrite()
	_ = client.SetReadDeadline(until.Add(drainTime))
	_, _ = io.CopyN(io.Discard, client, drainBytes) // one that is closed while it sends would never read why
}

// reply is move for the answers of server.
func (d *dialogue) reply(client, server *net.TCPConn, heard []byte, s *seat) (moved int64, err error) {
	first, moved, err := begin(client, server, heard)
	d.answer <- first
	if err == nil {
		var n int64
		n, err = move(client, server, nil, s)
		moved += n
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if why := d.refusal.Load(); why != nil && err == nil {
		_ = client.SetDeadline(time.Now().Add(drainTime)) // it need not be heard longer
		_, err = client.Write(response(*why))
	}
	if err == nil && d.ended.Swap(true) {
		err = errAnew
	}
	return moved, err
}

// begin moves the first bytes of what src says, and returns them.
func begin(dst, src *net.TCPConn, heard []byte) (first []byte, moved int64, err error) {
	note := func(b []byte) error {
		first = append(first, b[:min(len(b), statusLine-len(first))]...)
		n, err := dst.Write(b)
		moved += int64(n)
		return err
	}
	if len(heard) > 0 {
		err = note(heard)
	}
	for err == nil && len(first) < statusLine {
		var buffer *[bufferSize]byte
		var n int
		if buffer, n, err = take(src); err == nil {
			err = note(buffer[:n])
		}
		if buffer != nil {
			buffers.Put(buffer)
		}
	}
	return first, moved, err
}

// lostError is that of a connection, and says nothing of a request.
type lostError struct{ error }

func lost(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return lostError{err}
}
