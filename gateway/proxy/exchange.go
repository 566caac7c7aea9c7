package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/usage"
)

// exchange is one request and its answer.
type exchange struct {
	*plain
	request *http.Request
	use     usage.Use

	sent   upload
	wrote  chan struct{} // closed when the server was sent all, or failed to take it
	whole  bool          // it was; known when wrote is closed
	acted  chan struct{} // closed when the client, which has sent all, does something more
	absent atomic.Bool   // the client is gone
}

// clientGone is the reason in the record of a request that its client did not wait for.
const clientGone = "the client went away"

// exchange passes r on, and its answer back. It reports whether the client may ask for more.
func (w *plain) exchange(r *http.Request) (more bool, err error) {
	x := &exchange{plain: w, request: r, wrote: make(chan struct{}), acted: make(chan struct{})}
	answered := w.server.read.Load()
	x.use = usage.Use{Sandbox: w.p.config.Sandbox, Name: w.f.name, Rule: w.rule, Method: r.Method, Path: cmp.Or(r.URL.Path, "/"), Begun: time.Now()}
	x.prepare()
	if r.Body == http.NoBody {
		x.send()
		w.all.Go(x.watch)
	} else {
		w.all.Go(func() {
			x.send()
			x.watch()
		})
	}
	res, err := x.hear()
	if err != nil {
		err = x.failed(err)
		x.record(0, err)
		if answered > 0 && w.server.read.Load() == answered && sbxerr.Of(err) == sbxerr.EgressDial {
			err = nil // it ended the connection just then: clients ask anew
		}
		return false, err
	}
	x.use.Status = res.StatusCode
	if res.StatusCode == http.StatusSwitchingProtocols || r.Method == http.MethodConnect && res.StatusCode < 300 && res.ContentLength < 0 {
		return false, x.tunnel(res)
	}
	received, more, err := x.answer(res)
	x.record(received, err)
	if more {
		w.p.answered(w.f)
		<-x.acted
	}
	return more, err
}

// record tells of the request, which is over.
func (x *exchange) record(received int64, err error) {
	if err != nil && x.use.Code == "" {
		x.use.Code, x.use.Reason = cmp.Or(sbxerr.Of(err), sbxerr.Canceled), policy.Cause(err)
	}
	x.use.Sent, x.use.Received, x.use.Duration = x.sent.n.Load(), received, time.Since(x.use.Begun)
	x.p.seen.note(x.use)
}

// prepare makes of the client's request the one that the server gets.
func (x *exchange) prepare() {
	r := x.request
	if x.scoped || r.Header["Http2-Settings"] != nil || slices.ContainsFunc(r.Header["Upgrade"], func(list string) bool { return strings.Contains(strings.ToLower(list), "h2c") }) {
		for _, name := range []string{"Upgrade", "Http2-Settings", "Connection"} { // nobody reads what is offered
			r.Header.Del(name)
		}
	}
	if _, said := r.Header["User-Agent"]; !said {
		r.Header["User-Agent"] = nil // else there is one of Go
	}
	if r.Trailer == nil {
		r.Trailer = http.Header{} // gets those that are not announced
	}
	if path, _, _ := strings.Cut(r.RequestURI, "?"); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
		r.URL.Opaque = path // as it is written
	}
	if r.Body != http.NoBody {
		x.sent.exchange, x.sent.from = x, r.Body
		r.Body = &x.sent
	}
}

// send passes the request on.
func (x *exchange) send() {
	defer close(x.wrote)
	err := x.request.Write(struct {
		io.Writer
		io.ByteWriter
	}{x.asks, x.asks}) // its ReadFrom would not let the body flush it
	err = cmp.Or(err, x.asks.Flush())
	x.whole = err == nil
	if x.sent.failed() != nil {
		reset(x.f.upstream)
	} // else it may have answered already
}

// watch looks after a client that has sent all until it does something more: the server learns
// that it is done, or gone.
func (x *exchange) watch() {
	defer close(x.acted)
	if !x.whole {
		return
	}
	switch _, err := x.in.Peek(1); {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded): // nobody waits for it
	case errors.Is(err, io.EOF):
		_ = x.server.CloseWrite() // where it fails, the answer does
	default:
		x.absent.Store(true)
		reset(x.f.upstream)
	}
}

// hear reads the head of the answer, and passes on what comes before it.
func (x *exchange) hear() (*http.Response, error) {
	for {
		x.most.N = answerHead
		res, err := http.ReadResponse(x.answers, x.request)
		x.most.N = math.MaxInt64
		if err != nil || res.StatusCode >= http.StatusOK || res.StatusCode == http.StatusSwitchingProtocols {
			return res, err
		}
		if x.request.ProtoAtLeast(1, 1) {
			if err := x.writeHead(res.Status, res.Header); err != nil {
				return nil, err
			}
		}
	}
}

// failed is why there was no answer: what the client is told, or that it is lost.
func (x *exchange) failed(err error) error {
	if refusal := x.refusal(); refusal != nil {
		return refusal
	}
	if x.f.ctx.Err() != nil || x.absent.Load() || x.sent.failed() != nil {
		x.use.Code, x.use.Reason = sbxerr.Canceled, clientGone
		return lostError{err}
	}
	if network := new(net.OpError); errors.As(err, &network) {
		err = network.Err // its addresses mean nothing to the client
	}
	return sbxerr.New(sbxerr.EgressDial, "proxy.answer", "%s does not answer as it should: %v", x.f.target(), err)
}

// refusal is of a body that is not as it should be.
func (x *exchange) refusal() error {
	err := x.sent.failed()
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*net.OpError)) {
		return nil
	}
	return x.p.matches(x.f, "", fmt.Errorf("the HTTP request has a body that cannot be read: %w", err))
}

// answer passes an answer on.
func (x *exchange) answer(res *http.Response) (received int64, more bool, err error) {
	from := &download{from: res.Body, x: x}
	res.Body = from
	if res.Trailer == nil {
		res.Trailer = http.Header{} // likewise
	}
	more = !x.request.Close && !res.Close && x.request.ProtoAtLeast(1, 1)
	if !x.request.ProtoAtLeast(1, 1) {
		res.ProtoMajor, res.ProtoMinor, res.TransferEncoding = 1, 0, nil
		res.Header.Del("Connection")
	}
	res.Close = !more
	switch {
	case res.StatusCode != http.StatusNoContent:
		err = cmp.Or(res.Write(struct{ io.Writer }{x.out}), x.out.Flush()) // likewise
	case !more:
		res.Header.Set("Connection", "close")
		fallthrough
	default:
		err = x.writeHead(res.Status, res.Header) // else it might get a length
	}
	if err != nil {
		x.use.Code, x.use.Reason = sbxerr.Canceled, clientGone
		if from.failed {
			x.use.Code, x.use.Reason = sbxerr.EgressDial, "the answer broke off"
		}
		return from.n, false, lostError{err}
	}
	if more {
		<-x.wrote
	}
	return from.n, more && x.whole, x.refusal()
}

// tunnel has bytes flow both ways from now on: nobody here reads the protocol to which the server
// switched.
func (x *exchange) tunnel(res *http.Response) error {
	d, _ := x.p.ask(x.f, asking{method: http.MethodConnect}) // nobody reads it from now on
	if x.request.Body != http.NoBody || x.scoped || !d.Allowed {
		err := x.failed(errors.New("it changes the protocol, which was not asked for"))
		x.record(0, err)
		return err
	}
	_ = x.conn.SetReadDeadline(time.Unix(1, 0)) // what fails here fails below
	<-x.acted
	if err := errors.Join(x.conn.SetReadDeadline(time.Time{}), x.writeHead(res.Status, res.Header)); err != nil {
		x.record(0, lostError{err})
		return lostError{err}
	}
	heard := unread(x.answers, x.server)
	x.server.read.Add(-int64(x.answers.Buffered())) // they are counted below
	x.count()
	x.switched = true
	x.p.relay(x.f, x.all, unread(x.in, x.conn), heard, func(c tally) {
		x.sent.n.Store(c.sent)
		x.record(c.received, nil)
	})
	return nil
}

// upload is the body of a request.
type upload struct {
	*exchange
	from  io.Reader
	n     atomic.Int64
	broke atomic.Pointer[error]
}

// Read lets the server have what came before, and counts. Of trailers, those that say where a
// request ends or leads to are dropped (RFC 9110, 6.5.1).
func (b *upload) Read(p []byte) (int, error) {
	if err := b.asks.Flush(); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p)
	b.n.Add(int64(n))
	if errors.Is(err, io.EOF) {
		for _, name := range []string{"Host", "Content-Length", "Transfer-Encoding"} {
			b.request.Trailer.Del(name)
		}
	} else if err != nil {
		b.broke.Store(&err)
	}
	return n, err
}

// Close reads nothing more, as that of package net/http would.
func (b *upload) Close() error { return nil }

// failed is why the client did not send all; nil: it may have.
func (b *upload) failed() error {
	if err := b.broke.Load(); err != nil {
		return *err
	}
	return nil
}

// download is the body of an answer.
type download struct {
	from   io.Reader
	x      *exchange
	n      int64
	failed bool
}

// Read lets the client have what came before, and counts.
func (b *download) Read(p []byte) (int, error) {
	if err := b.x.out.Flush(); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p)
	b.n += int64(n)
	b.failed = b.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}

// Close is as that of an upload.
func (b *download) Close() error { return nil }
