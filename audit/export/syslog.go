package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/audit"
)

// severityInfo is that of all messages (RFC 5424, section 6.2.1).
const severityInfo = 6

// appName names the daemon in syslog and in the journal.
const appName = "caissond"

// seen is what a message says of its record.
type seen struct {
	Time time.Time `json:"time"`
	Type string    `json:"type"`
}

// eventType is the type of the record without the prefix that all have, at most 32 bytes.
func (s seen) eventType() string {
	t := strings.TrimPrefix(s.Type, "run.caisson.")
	return t[:min(len(t), 32)]
}

func look(line []byte) (s seen) {
	_ = json.Unmarshal(line, &s) // what cannot be read is left out
	return s
}

// message appends the syslog message of a record with its length before it (RFC 5424,
// RFC 6587). The text is the record as the log has it.
func (r Receiver) message(buf []byte, rec audit.Record) []byte {
	s := look(rec.Line)
	stamp, id := "-", "-"
	if !s.Time.IsZero() {
		stamp = s.Time.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	if t := s.eventType(); t != "" && !strings.ContainsFunc(t, func(c rune) bool { return c <= ' ' || c > '~' }) {
		id = t
	}
	head := fmt.Sprintf("<%d>1 %s %s %s - %s - ", r.Facility*8+severityInfo, stamp, r.Hostname, appName, id)
	buf = strconv.AppendInt(buf, int64(len(head)+len(rec.Line)), 10)
	buf = append(buf, ' ')
	buf = append(buf, head...)
	return append(buf, rec.Line...)
}

// stream is a connection by which syslog goes.
type stream struct {
	net.Conn
	r     Receiver
	buf   []byte
	ended chan struct{}
	why   error // of the end
}

func newStream(c net.Conn, r Receiver) *stream {
	s := &stream{Conn: c, r: r, ended: make(chan struct{})}
	go func() { // a receiver says nothing, so what ends this is the end
		defer close(s.ended)
		if _, s.why = io.Copy(io.Discard, c); s.why == nil {
			s.why = io.EOF
		}
	}()
	return s
}

func (s *stream) send(rec audit.Record) (int, error) {
	s.buf = s.r.message(s.buf[:0], rec)
	if err := s.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	n, err := s.Write(s.buf)
	return n, errStalled(err)
}

func (s *stream) hasRead() bool {
	c, local := s.Conn.(*net.UnixConn)
	return local && hasRead(c)
}

func (s *stream) broken() <-chan struct{} { return s.ended }

func (s *stream) cause() error { return s.why }

// finish sends the end, and waits for that of the receiver, which has read all before it.
func (s *stream) finish() error {
	c, ok := s.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.New("the connection has no end of its own")
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	select {
	case <-s.ended:
		if !errors.Is(s.why, io.EOF) {
			return s.why
		}
		return nil
	case <-time.After(finishWait):
		return errors.New("the receiver did not end the connection")
	}
}

func (s *stream) abort() { _ = s.SetDeadline(time.Unix(1, 0)) }

func (s *stream) close() {
	_ = s.Close() // what it held is sent again
	<-s.ended
}
