package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// How often a request is tried, and the pauses between: half a second, one, two, four.
const (
	maxTries   = 5
	firstPause = 500 * time.Millisecond
)

// Bounds of an answer, in bytes. Layers are bounded by the size that their descriptor
// states.
const (
	maxTokenBody = 1 << 20
	maxBody      = 8 << 20
)

// layerKey marks the context of requests for layers, targetKey that of each with its address.
type (
	layerKey  struct{}
	targetKey struct{}
)

// transport sends requests where guard allows it, and again where that may help.
type transport struct {
	base  http.RoundTripper
	guard *guard
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = t.guard.request(req)
	for try := 1; ; try++ {
		resp, err := t.once(req)
		wait, again := t.again(resp, err, try)
		if again && try == maxTries {
			return nil, exhausted(req, resp, err)
		}
		if !again {
			if err == nil {
				err = t.check(req, resp)
			}
			if err != nil {
				return nil, err
			}
			return resp, nil
		}
		if resp != nil {
			resp.Body.Close() // it is asked for again
		}
		if err := sleep(req.Context(), wait); err != nil {
			return nil, exhausted(req, resp, errors.Join(err, context.Cause(req.Context())))
		}
		if req, err = rewound(req); err != nil {
			return nil, err
		}
	}
}

// check closes an answer that is refused.
func (t *transport) check(req *http.Request, resp *http.Response) error {
	resp.Request = req
	if err := t.guard.response(resp); err != nil {
		resp.Body.Close() // it is not read
		return err
	}
	return nil
}

// once sends req and cuts an answer that does not come.
func (t *transport) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(t.guard.stall, func() { cancel(errStalled) })
	resp, err := t.base.RoundTrip(req.WithContext(context.WithValue(ctx, targetKey{}, req.URL)))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errStalled) {
			err = fmt.Errorf("%s sent nothing for %s: %w", req.URL.Host, t.guard.stall, errStalled)
		}
		cancel(nil)
		return nil, err
	}
	left := int64(maxBody)
	switch {
	case t.guard.isToken(req.URL):
		left = maxTokenBody
	case req.Context().Value(layerKey{}) != nil:
		left = -1
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, stall: t.guard.stall, left: left}
	return resp, nil
}

var errStalled = errors.New("the registry stalls")

// again reports whether to try once more, and after what pause.
func (t *transport) again(resp *http.Response, err error, try int) (time.Duration, bool) {
	pause := t.guard.pause << (try - 1)
	if err != nil {
		return pause, transient(err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after, ok := retryAfter(resp.Header.Get("Retry-After")); ok {
			return after, true
		}
		return pause, true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return pause, true
	}
	return 0, false
}

// transient reports whether a connection that failed so may succeed later. A server that
// refuses connections is not waited for: a mirror that is down must not hold up others.
func transient(err error) bool {
	var timeout net.Error
	return errors.Is(err, errStalled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errShort) ||
		errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.DeadlineExceeded)
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(value string) (time.Duration, bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// sleep fails at once if ctx ends before the pause does.
func sleep(ctx context.Context, pause time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
		return fmt.Errorf("it asks to wait %s, longer than the pull may take", pause.Round(time.Second))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// exhausted is the error of a request that was tried often enough.
func exhausted(req *http.Request, resp *http.Response, err error) error {
	if resp == nil {
		return sbxerr.New(sbxerr.Registry, opGuard, "%s does not answer: %v", req.URL.Host, err) // not %w: containerd would try all of it again
	}
	resp.Body.Close() // only its head counts
	said := resp.Status
	if after := resp.Header.Get("Retry-After"); after != "" {
		said += ", Retry-After " + sbxerr.Clip(after)
	}
	if err != nil {
		return sbxerr.New(sbxerr.Registry, opGuard, "%s answers %s: %v", req.URL.Host, said, err)
	}
	return sbxerr.New(sbxerr.Registry, opGuard, "%s answers %s, %d times", req.URL.Host, said, maxTries)
}

// rewound is req with its body from the beginning.
func rewound(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.GetBody == nil {
		return req, nil
	}
	b, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = b
	return req, nil
}

// body is an answer that is cut if it stalls, or is too long.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	left   int64 // bytes; -1 for no bound
}

// Read implements io.Reader. A stall reads like a broken connection, after which the
// fetcher goes on where it was.
func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.stall, func() { b.cancel(errStalled) })
	n, err := b.ReadCloser.Read(p)
	timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), errStalled) {
		err = io.ErrUnexpectedEOF
	}
	if b.left >= 0 {
		if b.left -= int64(n); b.left < 0 {
			return 0, sbxerr.New(sbxerr.ImageTooBig, opGuard, "an answer of the registry is longer than %d bytes", maxBody)
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
