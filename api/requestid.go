package api

import (
	"context"
	"net/http"
)

// The headers that tell a call from others. The daemon takes the caller's, or makes
// them, and returns them; its log has one line for each.
const (
	RequestIDHeader   = "X-Request-Id"
	TraceparentHeader = "Traceparent"  // W3C Trace Context
	CodeHeader        = "Caisson-Code" // of an error, also in its body
)

type requestIDKey struct{}

// RequestID names a call in the daemon's log, in results and in errors.
type RequestID struct {
	ID          string // 1 to 128 printable characters; empty: the daemon makes one
	Traceparent string // of the caller's span; empty: none
}

// WithRequestID has the calls of the returned context named.
func WithRequestID(ctx context.Context, id RequestID) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// namedTransport sends the names of calls.
type namedTransport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper]. The header of connect's request is its own.
func (t namedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	id, _ := req.Context().Value(requestIDKey{}).(RequestID)
	if id.ID != "" {
		req.Header.Set(RequestIDHeader, id.ID)
	}
	if id.Traceparent != "" {
		req.Header.Set(TraceparentHeader, id.Traceparent)
	}
	return t.RoundTripper.RoundTrip(req)
}
