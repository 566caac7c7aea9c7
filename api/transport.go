package api

import (
	"io"
	"net/http"
	"sync/atomic"
)

// maxSingle is how many calls at once have a connection of their own. Those
// beyond share one: a program may wait for hundreds of commands at once.
const maxSingle = 32

// transport gives a call of one request and one answer a connection for as long
// as it takes, with HTTP/1: each side then reads and writes where it waits,
// while HTTP/2 hands every frame from one goroutine to the next, which takes a
// quarter of a millisecond longer. Streams go both ways and need HTTP/2.
type transport struct {
	single http.RoundTripper
	shared *http.Transport
	idle   func()        // ends the connections of single that nobody uses
	busy   *atomic.Int32 // calls that single has
}

func newTransport(o Options) transport {
	t := transport{shared: dialing(o.Socket), busy: &atomic.Int32{}}
	t.shared.Protocols.SetUnencryptedHTTP2(true)
	t.shared.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: maxFrame}
	if o.Brief {
		t.single, t.idle = brief{o.Socket}, func() {}
		return t
	}
	single := dialing(o.Socket)
	single.Protocols.SetHTTP1(true)
	single.MaxIdleConnsPerHost = maxSingle
	single.IdleConnTimeout = idleTimeout
	single.DisableCompression = true
	t.single, t.idle = single, single.CloseIdleConnections
	return t
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if streamed(req) {
		return t.shared.RoundTrip(req)
	}
	if t.busy.Add(1) > maxSingle {
		t.busy.Add(-1)
		return t.shared.RoundTrip(req)
	}
	res, err := t.single.RoundTrip(req)
	if err != nil {
		t.busy.Add(-1)
		return nil, err
	}
	res.Body = &countedBody{ReadCloser: res.Body, busy: t.busy}
	return res, nil
}

// streamed reports whether the body of req is one whose end is not known yet.
func streamed(req *http.Request) bool { return req.ContentLength < 0 }

func (t transport) closeIdle() {
	t.idle()
	t.shared.CloseIdleConnections()
}

// countedBody takes its call off the count when it is closed.
type countedBody struct {
	io.ReadCloser
	busy   *atomic.Int32
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	if !b.closed.Swap(true) {
		b.busy.Add(-1)
	}
	return b.ReadCloser.Close()
}
