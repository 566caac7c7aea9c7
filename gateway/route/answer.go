package route

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/mask"
)

// leastHeld is how much of a secret must have come before a dialogue waits for the rest.
const leastHeld = 8

// answer makes of the upstream's answer the one that the client gets.
func (l *lane) answer(w *writer, res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return l.tunnel(w, res)
	}
	if err := l.denied(res); err != nil {
		return err
	}
	if err := errors.Join(decode(res), readable(res.Header)); err != nil {
		return err
	}
	if err := l.relocateBatch(w, res); err != nil {
		return err
	}
	h := res.Header
	if l.route.Credential != "" {
		h.Del("Www-Authenticate") // the client has nothing to answer with
	}
	if location := h.Get("Location"); location != "" {
		h.Set("Location", l.relocate(w.at, res.Request.URL, location))
	}
	clean(w.mask, h)
	if len(res.Trailer) > 0 {
		h.Del("Content-Length") // with it, HTTP/1.1 has no trailers
		res.ContentLength = -1
	}
	res.Body = &body{Reader: l.measured(w, res, w.mask.NewReader(res.Body, held(res.Header))), Closer: res.Body, n: &w.received, pass: w.pass, end: func() { maskHeader(w.mask, res.Trailer) }}
	return nil
}

// tunnel masks a WebSocket.
func (l *lane) tunnel(w *writer, res *http.Response) error {
	both, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return errors.New("the upstream switched protocols, and there is no way to it")
	}
	clean(l.mask, res.Header)
	w.use.Status = res.StatusCode
	res.Body = &tunnel{
		body:   body{Reader: l.mask.NewReader(both, leastHeld), Closer: both, n: &w.received, pass: w.pass},
		Writer: &counted{both, &w.sent, w.pass},
	}
	return nil
}

// decode unpacks an answer, and refuses one that cannot be looked through.
func decode(res *http.Response) error {
	encoding := strings.ToLower(strings.Join(res.Header.Values("Content-Encoding"), ","))
	switch {
	case encoding == "" || encoding == "identity":
		return nil
	case res.Request.Method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified:
		return nil
	case encoding != "gzip" && encoding != "x-gzip":
		return fmt.Errorf("the upstream answered in the encoding %q, which was not asked for and cannot be looked through", encoding)
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength, res.Uncompressed = -1, true
	res.Body = &unzipped{from: res.Body}
	return nil
}

// unzipped unpacks what it reads, from the first byte on that is asked for.
type unzipped struct {
	from   io.ReadCloser
	reader *gzip.Reader
}

// Read returns what is there.
func (u *unzipped) Read(p []byte) (n int, err error) {
	if u.reader == nil {
		if u.reader, err = gzip.NewReader(u.from); err != nil {
			return 0, err
		}
	}
	return u.reader.Read(p)
}

// Close closes what is read.
func (u *unzipped) Close() error { return u.from.Close() }

// relocate leads a redirect to where the route leads back to the route. Any other one is
// followed by the client, by the sandbox's own rules and without the credential.
func (l *lane) relocate(at policy.Place, from *url.URL, location string) string {
	to, err := from.Parse(location)
	if err != nil {
		return location
	}
	base := l.baseOf(from)
	below, under := strings.CutPrefix(to.EscapedPath(), base.EscapedPath())
	if to.Scheme != base.Scheme || !strings.EqualFold(to.Host, base.Host) || !under || below != "" && below[0] != '/' {
		return location
	}
	if below == "" {
		below = "/"
	}
	text := at.URL() + below
	own := ""
	if l.placed.parameter != "" {
		own = l.route.Parameter
	}
	if raw, err := query(to.RawQuery, own); err == nil && raw != "" {
		text += "?" + raw
	}
	if to.Fragment != "" {
		text += "#" + to.EscapedFragment()
	}
	return text
}

// clean takes out of an answer what is of no use to a client, and masks the rest.
func clean(set *mask.Set, h http.Header) {
	h.Del("Set-Cookie") // no cookie ever gets back to the upstream
	h.Del("Alt-Svc")
	maskHeader(set, h)
}

// maskHeader masks values. A header whose name gives something away is dropped: the case of
// a name changes on its way.
func maskHeader(set *mask.Set, h http.Header) {
	if set == nil {
		return
	}
	for name, values := range h {
		if lower := strings.ToLower(name); set.String(lower) != lower {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = set.String(v)
		}
	}
}

// body counts what it reads, and calls end at its end.
type body struct {
	io.Reader
	io.Closer
	n    *atomic.Int64
	pass func(int) error // may end it
	end  func()          // or nil
}

// Read counts.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.n.Add(int64(n))
	if spent := b.pass(n); spent != nil {
		return n, spent
	}
	if err == io.EOF && b.end != nil {
		b.end()
	}
	return n, err
}

// tunnel is both ways of a WebSocket.
type tunnel struct {
	body
	io.Writer
}

// counted counts what it writes.
type counted struct {
	io.Writer
	n    *atomic.Int64
	pass func(int) error
}

// Write counts.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, errors.Join(err, c.pass(n))
}
