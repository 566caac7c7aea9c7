package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// bareWriter gives the refusals that the library makes itself the form of all others: a
// caller must be able to read each error in the same one. For some it writes a status
// alone, for some a code and a text.
type bareWriter struct {
	http.ResponseWriter
	call   *http.Request
	writer *connect.ErrorWriter

	status int          // of a refusal that is held back; 0: there is none
	body   bytes.Buffer // of it
}

// WriteHeader implements [http.ResponseWriter].
func (b *bareWriter) WriteHeader(status int) {
	if err := bareRefusal(status, b.call); err != nil {
		b.refuse(status, fail(err))
		return
	}
	if status >= http.StatusBadRequest && b.Header().Get("Content-Type") == "application/json" {
		b.status = status
		return
	}
	b.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (b *bareWriter) Write(p []byte) (int, error) {
	if b.status != 0 {
		return b.body.Write(p)
	}
	return b.ResponseWriter.Write(p)
}

// end writes what was held back, when the call is over.
func (b *bareWriter) end() {
	if b.status == 0 {
		return
	}
	var said struct {
		Message string
		Details []json.RawMessage
	}
	if err := json.Unmarshal(b.body.Bytes(), &said); err != nil || len(said.Details) > 0 {
		b.ResponseWriter.WriteHeader(b.status)
		_, _ = b.ResponseWriter.Write(b.body.Bytes()) // who does not read it knows no better
		return
	}
	b.Header().Del("Content-Length")
	err := unreadable(errors.New(said.Message))
	if b.status == http.StatusTooManyRequests { // the message is too large
		b.refuse(b.status, failAs(connect.CodeResourceExhausted, err))
		return
	}
	b.refuse(http.StatusBadRequest, fail(err))
}

// unreadable is a request that the library could not read.
func unreadable(why error) error {
	return sbxerr.WithRemedy(sbxerr.APIUsage, "server.read", fmt.Errorf("the request cannot be read: %w", why),
		"send one whole message, in the content type that the call names and without an encoding")
}

// refuse writes err as the answer to a call of one message, which every client reads.
func (b *bareWriter) refuse(status int, err error) {
	unary := b.call.Clone(context.WithoutCancel(b.call.Context()))
	unary.Header.Set("Content-Type", "application/json")
	_ = b.writer.Write(statusWriter{b.ResponseWriter, status}, unary, err)
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
	case http.StatusMethodNotAllowed:
		return sbxerr.WithRemedy(sbxerr.APIUsage, op, fmt.Errorf("the call %q is not made with the method %s", path, sbxerr.Clip(call.Method)), "use POST")
	case http.StatusUnsupportedMediaType:
		return sbxerr.WithRemedy(sbxerr.APIUsage, op, fmt.Errorf("the call %q does not take the content type %q", path, sbxerr.Clip(call.Header.Get("Content-Type"))),
			"use one that the header Accept-Post of this answer lists: application/json for one answer, application/connect+json for a stream")
	}
	return nil
}
