package files

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	wire "github.com/caisson-run/caisson/initproto/files"
)

// upload is the sending side of a write or a copy in.
type upload struct {
	conn  *Client
	what  subject
	early chan struct{} // closed when the process has answered
	frame []byte        // room for one Data
	left  int64         // bytes that may still be sent
	lost  bool          // a failure to send ended it
}

// errAnswered stops an upload whose answer has come before its end.
var errAnswered = errors.New("the process has answered")

// reply is the first frame of an answer.
type reply struct {
	kind wire.Kind
	body []byte
	err  error
}

// upload lets feed send, ends or undoes what it sent, and returns the answer.
func (c *Client) upload(what subject, patience time.Duration, feed func(*upload) error) (wire.Kind, []byte, error) {
	if err := c.arm(0); err != nil {
		return 0, nil, err
	}
	u := &upload{conn: c, what: what, early: make(chan struct{}), left: c.limits.Bytes}
	u.frame = make([]byte, wire.HeaderSize+wire.MaxData)
	var r reply
	go func() { // ends with the answer, or with the deadlines that are set below
		defer close(u.early)
		r.kind, r.body, r.err = c.hear(what)
	}()
	fed := feed(u)
	end := wire.KindEnd
	if fed != nil && !errors.Is(fed, errAnswered) {
		end = wire.KindAbort
	}
	sent := fed
	if !u.lost { // with half a frame, the process would take another for the rest of it
		sent = c.send(wire.Frame(end))
	}
	if sent == nil {
		sent = c.arm(patience)
	}
	if sent != nil {
		c.interrupt()
	}
	<-u.early
	if err := u.verdict(r, fed, sent); err != nil {
		return 0, nil, err
	}
	c.input = false
	return r.kind, r.body, nil
}

// verdict chooses the error of an upload: that of its source before the answer,
// and the answer before a connection that was lost.
func (u *upload) verdict(r reply, fed, sent error) error {
	early := errors.Is(fed, errAnswered)
	switch {
	case fed != nil && !early && !u.lost:
		return fed
	case u.conn.answered: // with a Failure
		return r.err
	case early && r.err == nil:
		return unexpected(r.kind)
	case fed != nil && !early:
		return fed
	case sent != nil:
		return sent
	}
	return r.err
}

// send sends one frame, unless the answer is there already.
func (u *upload) send(frame []byte) error {
	select {
	case <-u.early:
		return errAnswered
	default:
	}
	err := u.conn.send(frame)
	u.lost = err != nil
	return err
}

// data sends all of content, and returns how many bytes there were.
func (u *upload) data(content io.Reader) (total int64, err error) {
	for {
		n, err := content.Read(u.frame[wire.HeaderSize:])
		if n > 0 {
			if u.left -= int64(n); u.left < 0 {
				return total, tooManyBytes(u.what, u.conn.limits.Bytes)
			}
			wire.PutHeader(u.frame, wire.KindData, n)
			if err := u.send(u.frame[:wire.HeaderSize+n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, sourceError(err)
		}
	}
}

// sourceError is an error of what the caller gives.
func sourceError(err error) error {
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	return sbxerr.Wrap(sbxerr.Canceled, "files.receive", fmt.Errorf("read what is to be written: %w", err))
}
