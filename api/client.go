// Package api is the Go client of caissond and the form in which failures are
// told. The messages are those of api/caisson/v1.
package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
)

// DefaultSocket is where caissond listens unless told otherwise.
const DefaultSocket = "/run/caisson/caisson.sock"

// dialTimeout bounds connecting. A unix socket connects at once or its
// listener's backlog is full.
const dialTimeout = 10 * time.Second

// idleTimeout is how long a connection is kept that nobody uses; less than the
// daemon keeps it.
const idleTimeout = time.Minute

// DefaultReconnect is how long a foreground command, Logs and the Waits try to
// continue where they were, when the connection to the daemon breaks.
const DefaultReconnect = 10 * time.Second

// maxIdle is how many connections are kept for calls that may follow.
const maxIdle = 32

// Client calls one daemon. Every error of its methods is an *Error, but for
// those that the caller's own readers and writers return. It is safe for
// concurrent use.
type Client struct {
	transport  *http.Transport
	key        string
	reconnect  time.Duration
	sandboxes  func() caissonv1connect.SandboxServiceClient
	execs      func() caissonv1connect.ExecServiceClient
	images     func() caissonv1connect.ImageServiceClient
	volumes    func() caissonv1connect.VolumeServiceClient
	secrets    func() caissonv1connect.SecretServiceClient
	snapshots  func() caissonv1connect.SnapshotServiceClient
	templates  func() caissonv1connect.TemplateServiceClient
	workspaces func() caissonv1connect.WorkspaceServiceClient
	system     func() caissonv1connect.SystemServiceClient
	network    func() caissonv1connect.NetworkServiceClient
	files      func() caissonv1connect.FileServiceClient
	events     func() caissonv1connect.EventServiceClient
}

// Options say how a Client reaches its daemon.
type Options struct {
	Socket string // empty is DefaultSocket
	// Dial connects in place of the socket. Host.Options has one for other hosts.
	Dial func(ctx context.Context) (net.Conn, error)
	Key  string // by which the client acts for a user; sent with each call by Dial
	// Reconnect is how long the daemon may be away; 0 is DefaultReconnect, and
	// less than 0 never connects again.
	Reconnect time.Duration
}

// Dial returns a client of the daemon on the unix socket. It connects with the
// first call.
func Dial(socket string) *Client { return New(Options{Socket: socket}) }

// New returns a client as o says. It connects with the first call.
func New(o Options) *Client {
	if o.Socket == "" {
		o.Socket = DefaultSocket
	}
	if o.Reconnect == 0 {
		o.Reconnect = DefaultReconnect
	}
	if o.Dial == nil {
		o.Dial, o.Key = func(ctx context.Context) (net.Conn, error) { return dial(ctx, o.Socket) }, ""
	}
	transport := newTransport(o.Dial)
	var tripper http.RoundTripper = namedTransport{abortingTransport{transport}}
	if o.Key != "" {
		tripper = keyTransport{tripper, o.Key}
	}
	httpClient := &http.Client{Transport: tripper, CheckRedirect: noRedirect}
	options := connect.WithClientOptions(
		connect.WithInterceptors(decoder{}),
		connect.WithAcceptCompression("gzip", nil, nil), // a local socket gains nothing from it
	)
	return &Client{
		transport:  transport,
		key:        o.Key,
		reconnect:  o.Reconnect,
		sandboxes:  lazily(caissonv1connect.NewSandboxServiceClient, httpClient, options),
		execs:      lazily(caissonv1connect.NewExecServiceClient, httpClient, options),
		images:     lazily(caissonv1connect.NewImageServiceClient, httpClient, options),
		volumes:    lazily(caissonv1connect.NewVolumeServiceClient, httpClient, options),
		secrets:    lazily(caissonv1connect.NewSecretServiceClient, httpClient, options),
		snapshots:  lazily(caissonv1connect.NewSnapshotServiceClient, httpClient, options),
		templates:  lazily(caissonv1connect.NewTemplateServiceClient, httpClient, options),
		workspaces: lazily(caissonv1connect.NewWorkspaceServiceClient, httpClient, options),
		system:     lazily(caissonv1connect.NewSystemServiceClient, httpClient, options),
		network:    lazily(caissonv1connect.NewNetworkServiceClient, httpClient, options),
		files:      lazily(caissonv1connect.NewFileServiceClient, httpClient, options),
		events:     lazily(caissonv1connect.NewEventServiceClient, httpClient, options),
	}
}

// lazily makes the client of a service with its first call: a program that
// lives for a few milliseconds calls one service.
func lazily[C any](make func(connect.HTTPClient, string, ...connect.ClientOption) C, h connect.HTTPClient, o connect.ClientOption) func() C {
	return sync.OnceValue(func() C { return make(h, "http://caisson", o) }) // the host is not looked at
}

// noRedirect takes an answer as it is: the daemon sends nobody elsewhere, least of all a key.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newTransport speaks HTTP/1.1: each call under way has a connection of its own.
func newTransport(dial func(context.Context) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
}

// Close ends idle connections. Calls under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Ping reports whether somebody listens on the socket, without a call.
func Ping(ctx context.Context, socket string) error {
	conn, err := dial(ctx, socket)
	if err != nil {
		return decode(ctx, err)
	}
	return conn.Close()
}

// DialSocket connects to the socket, for who speaks to the daemon by other means.
func DialSocket(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := dial(ctx, socket)
	return conn, decode(ctx, err)
}

func dial(ctx context.Context, socket string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, &dialError{socket, err}
	}
	return conn, nil
}

// abortingTransport makes the end of a request's context break off a body that
// is still being streamed. By itself, net/http notices the end only with the
// body's next Read, which for a pipe may never come; and ending the pipe
// instead would be a clean end of the request, which an aborted one is not.
type abortingTransport struct{ http.RoundTripper }

func (t abortingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.ContentLength < 0 { // a stream; every such call ends its own context
		context.AfterFunc(req.Context(), func() { _ = req.Body.Close() }) // a pipe's never fails
	}
	return t.RoundTripper.RoundTrip(req)
}

// call makes one unary call.
func call[Req, Res any](ctx context.Context, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	res, err := method(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}
