package proxy

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/gateway/usage"
)

// answerHead bounds the head of an answer, in bytes.
const answerHead = 256 << 10

// plain serves the requests of one client by plain HTTP, one after the other. Package net/http
// writes each of them anew, so a server gets requests that can be read in one way alone.
type plain struct {
	*requests
	all *sync.WaitGroup
	out *bufio.Writer // to the client

	server    *routeConn
	most      io.LimitedReader // of server
	answers   *bufio.Reader    // of most
	asks      *bufio.Writer    // to server
	asked     bool             // server was
	undialled bool             // there is no server any more
	switched  bool             // nobody reads the connection any more
	scoped    bool             // the rules are about some requests alone
	rule      string           // that allows the last one
	refusedBy string           // that refused one
}

// serveHTTP serves the client of f, which is connected to its server.
func (p *Proxy) serveHTTP(f *flow, all *sync.WaitGroup, said, heard []byte) {
	w := &plain{requests: p.requestsOf(f, said), all: all, out: bufio.NewWriter(f.client)}
	w.connected(heard)
	err := w.serve()
	if w.switched {
		return
	}
	w.count()
	switch {
	case w.undialled:
		p.carry(f, all, nil, nil, err)
		return
	case err == nil || errors.Is(err, io.EOF):
		say(f.client, nil)
	case errors.As(err, new(lostError)):
		f.broke()
		reset(f.client)
	case w.refusedBy != "" || sbxerr.Of(err) == sbxerr.EgressMismatch:
		p.tellRefused(f, cmp.Or(w.refusedBy, ruleMismatch), err)
		say(f.client, response(err))
	default:
		f.broke()
		say(f.client, response(err))
	}
	reset(f.upstream) // the answer was all that it had to say
	p.over(f)
}

func (w *plain) serve() error {
	for {
		r, err := w.next()
		if err == nil {
			err = w.passes(r)
		}
		if err == nil {
			err = w.reach()
		}
		if err != nil {
			return err
		}
		if more, err := w.exchange(r); err != nil || !more {
			return err
		}
	}
}

// passes refuses r where the rules are about other requests. What asks for another protocol is then
// no longer asked for: its bytes would pass unread.
func (w *plain) passes(r *http.Request) error {
	path := r.URL.EscapedPath()
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ = strings.Cut(r.RequestURI, "?") // as it goes on
	}
	d, scoped := w.p.ask(w.f, asking{r.Method, cmp.Or(path, "/")})
	w.scoped, w.rule = scoped, d.Rule
	if !d.Allowed {
		w.refusedBy = d.Rule
	}
	return d.Err()
}

// reach connects to the server anew if it has ended the connection, or said what nobody asked for.
func (w *plain) reach() error {
	if !w.asked || w.answers.Buffered() == 0 && quiet(w.f.upstream) {
		w.asked = true
		return nil
	}
	w.count()
	heard, err := w.p.again(w.f)
	if err != nil {
		w.undialled = true
		return err
	}
	w.connected(heard)
	return nil
}

// connected says that the flow has a connection to its server, which said heard.
func (w *plain) connected(heard []byte) {
	w.server = &routeConn{TCPConn: w.f.upstream, heard: heard, seat: w.f.seat}
	w.most.R = w.server
	w.answers, w.asks = bufio.NewReader(&w.most), bufio.NewWriter(w.server)
}

// count notes what the connection to the server carried.
func (w *plain) count() {
	w.f.attempt.Sent += w.server.written.Swap(0)
	w.f.attempt.Received += w.server.read.Swap(0)
}

// writeHead writes the head of an answer to which there is no body.
func (w *plain) writeHead(status string, h http.Header) error {
	_, _ = fmt.Fprintf(w.out, "HTTP/1.1 %s\r\n", status) // the error of a bufio.Writer stays
	_ = h.Write(w.out)
	_, _ = w.out.WriteString(lineEnd)
	return w.out.Flush()
}

// Of the requests by plain HTTP past these, one record counts the others.
const (
	recordsPerSecond = 100
	recordBurst      = 1000
)

// seen tells of requests by plain HTTP.
type seen struct {
	rate  *rate.Limiter
	spare ratelog.Log[usage.Use]
}

func newSeen(c Config) *seen {
	if c.Requests == nil {
		return nil
	}
	s := &seen{rate: rate.NewLimiter(recordsPerSecond, recordBurst)}
	s.spare.Record = func(u usage.Use, skipped uint64) {
		u.Skipped = skipped
		c.Requests(u)
	}
	return s
}

// note tells of a request that is over.
func (s *seen) note(u usage.Use) {
	switch {
	case s == nil:
	case s.rate.Allow():
		s.spare.Add(u)
	default:
		s.spare.Suppress(u)
	}
}

func (s *seen) flush() {
	if s != nil {
		s.spare.Flush()
	}
}
