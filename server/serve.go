package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/slow"
)

const (
	maxConnections    = 4096
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxStreams        = 100 // of one connection; RFC 9113 advises against fewer
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
		Handler:           refusePeers(h),
		ConnContext:       withPeer,
		Protocols:         &protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			WriteByteTimeout:     slow.Timeout, // closes what slow.Bound cannot reach
		},
	}
}
