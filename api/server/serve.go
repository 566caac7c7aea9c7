package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/caisson-run/caisson/sbxerr"
)

const (
	maxConnections    = 1024
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	readBodyTimeout   = 30 * time.Second // of HTTP/1, where no body is a stream
	idleTimeout       = 2 * time.Minute
)

// Serve is ServeUntil with a last that ends grace after ctx.
func Serve(ctx context.Context, l net.Listener, h http.Handler, grace time.Duration) error {
	last, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cut) })()
	return ServeUntil(ctx, last, l, h)
}

// ServeUntil serves h on l, HTTP/1.1 and HTTP/2 without TLS, until ctx ends. Calls
// under way then have until last ends; what is left is cut off, which ends
// foreground runs. l is closed.
func ServeUntil(ctx, last context.Context, l net.Listener, h http.Handler) error {
	srv := NewHTTP(h)
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- shutdown(last, srv) })
	defer stop()
	err := srv.Serve(netutil.LimitListener(l, maxConnections))
	if errors.Is(err, http.ErrServerClosed) {
		return <-stopped
	}
	return sbxerr.Wrap(sbxerr.StateDir, "server.serve", err)
}

func shutdown(last context.Context, srv *http.Server) error {
	if err := srv.Shutdown(last); err == nil {
		return nil
	}
	return sbxerr.Wrap(sbxerr.Internal, "server.shutdown", srv.Close())
}

// NewHTTP returns the HTTP server for h, bounded against callers that send
// slowly or too much.
func NewHTTP(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           refusePeers(boundBody(h, readBodyTimeout)),
		ConnContext:       withPeer,
		Protocols:         &protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: writeTimeout}, // closes what boundWrites cannot reach
	}
}

// boundBody gives the body of an HTTP/1 request a time in which it must have
// come. An HTTP/2 body may be standard input, which takes as long as it takes.
func boundBody(h http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			control := http.NewResponseController(w)
			if err := control.SetReadDeadline(time.Now().Add(timeout)); err != nil {
				http.Error(w, "no read deadline", http.StatusInternalServerError)
				return
			}
			r.Body = &bodyUntilEnd{r.Body, control}
		}
		h.ServeHTTP(w, r)
	})
}

// bodyUntilEnd lifts the read deadline where the body ends: from there on, the
// server reads only to notice that the caller went away.
type bodyUntilEnd struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *bodyUntilEnd) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // it worked when the deadline was set
	}
	return n, err
}
