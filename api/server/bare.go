package server

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/sbxerr"
)

// bareWriter gives a body to the refusals for which the library writes a status alone: a
// caller must be able to read each error in the same form.
type bareWriter struct {
	http.ResponseWriter
	call   *http.Request
	writer *connect.ErrorWriter
}

// WriteHeader implements [http.ResponseWriter].
func (b *bareWriter) WriteHeader(status int) {
	err := bareRefusal(status, b.call)
	if err == nil {
		b.ResponseWriter.WriteHeader(status)
		return
	}
	unary := b.call.Clone(context.WithoutCancel(b.call.Context()))
	unary.Header.Set("Content-Type", "application/json") // the one form that every client reads
	_ = b.writer.Write(statusWriter{b.ResponseWriter, status}, unary, fail(err))
}

// Flush implements [http.Flusher].
func (b *bareWriter) Flush() { _ = http.NewResponseController(b.ResponseWriter).Flush() } // a broken stream fails the next write

// Unwrap is for [http.ResponseController].
func (b *bareWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// statusWriter keeps the status that the library chose.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (s statusWriter) WriteHeader(int) { s.ResponseWriter.WriteHeader(s.status) }

// bareRefusal is why a call is refused with one of these statuses, nil for all others.
func bareRefusal(status int, call *http.Request) error {
	const op = "server.call"
	path := sbxerr.Clip(call.URL.Path)
	switch status {
	case http.StatusHTTPVersionNotSupported:
		return sbxerr.WithRemedy(sbxerr.APIUsage, op, fmt.Errorf("the call %q sends and receives at the same time, which %s cannot", path, call.Proto),
			"use HTTP/2; or over HTTP/1.1 FollowRun and FollowExec, which send one message")
	case http.StatusMethodNotAllowed:
		return sbxerr.WithRemedy(sbxerr.APIUsage, op, fmt.Errorf("the call %q is not made with the method %s", path, sbxerr.Clip(call.Method)), "use POST")
	case http.StatusUnsupportedMediaType:
		return sbxerr.WithRemedy(sbxerr.APIUsage, op, fmt.Errorf("the call %q does not take the content type %q", path, sbxerr.Clip(call.Header.Get("Content-Type"))),
			"use one that the header Accept-Post of this answer lists: application/json for one answer, application/connect+json for a stream")
	}
	return nil
}
