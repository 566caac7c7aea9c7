// Package api is the Go client of caissond and the form in which failures are
// told. The messages are those of api/caisson/v1.
package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
)

// DefaultSocket is where caissond listens unless told otherwise.
const DefaultSocket = "/run/caisson/caisson.sock"

// DefaultOutputLimit is what is kept of each stream of a command, in bytes,
// where the request names no limit.
const DefaultOutputLimit = 10 << 20

// dialTimeout bounds connecting. A unix socket connects at once or its
// listener's backlog is full.
const dialTimeout = 10 * time.Second

// Client calls one daemon. Every error of its methods is an *Error, but for
// those that the caller's own readers and writers return. It is safe for
// concurrent use.
type Client struct {
	transport *http.Transport
	sandboxes caissonv1connect.SandboxServiceClient
	images    caissonv1connect.ImageServiceClient
	system    caissonv1connect.SystemServiceClient
}

// Dial returns a client of the daemon on the unix socket. It connects with the
// first call.
func Dial(socket string) *Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, socket)
		},
	}
	httpClient := &http.Client{Transport: abortingTransport{transport}}
	options := connect.WithClientOptions(
		connect.WithInterceptors(decoder{}),
		connect.WithAcceptCompression("gzip", nil, nil), // a local socket gains nothing from it
	)
	const base = "http://caisson" // the host is not looked at
	return &Client{
		transport: transport,
		sandboxes: caissonv1connect.NewSandboxServiceClient(httpClient, base, options),
		images:    caissonv1connect.NewImageServiceClient(httpClient, base, options),
		system:    caissonv1connect.NewSystemServiceClient(httpClient, base, options),
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
	if req.ContentLength < 0 { // streamed; every such call ends its own context
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

// List returns the sandboxes there are, oldest first.
func (c *Client) List(ctx context.Context, req *caissonv1.ListRequest) (*caissonv1.ListResponse, error) {
	return call(ctx, c.sandboxes.List, req)
}

// Inspect returns all that is known of one sandbox.
func (c *Client) Inspect(ctx context.Context, req *caissonv1.InspectRequest) (*caissonv1.InspectResponse, error) {
	return call(ctx, c.sandboxes.Inspect, req)
}

// Remove ends one sandbox and removes all of it.
func (c *Client) Remove(ctx context.Context, req *caissonv1.RemoveRequest) (*caissonv1.RemoveResponse, error) {
	return call(ctx, c.sandboxes.Remove, req)
}

// Cleanup removes what no live sandbox owns.
func (c *Client) Cleanup(ctx context.Context, req *caissonv1.CleanupRequest) (*caissonv1.CleanupResponse, error) {
	return call(ctx, c.sandboxes.Cleanup, req)
}

// Spec returns what Run would build, and builds nothing.
func (c *Client) Spec(ctx context.Context, req *caissonv1.SpecRequest) (*caissonv1.SpecResponse, error) {
	return call(ctx, c.sandboxes.Spec, req)
}

// ListImages returns the daemon's images.
func (c *Client) ListImages(ctx context.Context, req *caissonv1.ListImagesRequest) (*caissonv1.ListImagesResponse, error) {
	return call(ctx, c.images.ListImages, req)
}

// InspectImage returns all that is known of one image.
func (c *Client) InspectImage(ctx context.Context, req *caissonv1.InspectImageRequest) (*caissonv1.InspectImageResponse, error) {
	return call(ctx, c.images.InspectImage, req)
}

// RemoveImage removes one image that no sandbox needs.
func (c *Client) RemoveImage(ctx context.Context, req *caissonv1.RemoveImageRequest) (*caissonv1.RemoveImageResponse, error) {
	return call(ctx, c.images.RemoveImage, req)
}

// Version says what the daemon is.
func (c *Client) Version(ctx context.Context, req *caissonv1.VersionRequest) (*caissonv1.VersionResponse, error) {
	return call(ctx, c.system.Version, req)
}

// Doctor examines the daemon's host.
func (c *Client) Doctor(ctx context.Context, req *caissonv1.DoctorRequest) (*caissonv1.DoctorResponse, error) {
	return call(ctx, c.system.Doctor, req)
}

// Capabilities says how each field of a request is honoured on this host.
func (c *Client) Capabilities(ctx context.Context, req *caissonv1.CapabilitiesRequest) (*caissonv1.CapabilitiesResponse, error) {
	return call(ctx, c.system.Capabilities, req)
}
