package rest

import (
	"context"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// conn is a call of a stream, for the handler that Connect made.
type conn struct {
	call            *http.Request
	route           *route
	requests        requests
	answers         answers
	header, trailer http.Header
}

// Spec implements [connect.StreamingHandlerConn], as all methods.
func (c *conn) Spec() connect.Spec { return c.route.spec() }

// Peer is empty: the context knows the caller.
func (*conn) Peer() connect.Peer { return connect.Peer{} }

// RequestHeader is the header of the call.
func (c *conn) RequestHeader() http.Header { return c.call.Header }

// ResponseHeader is not sent: no call sets one.
func (c *conn) ResponseHeader() http.Header { return c.header }

// ResponseTrailer is sent after the body.
func (c *conn) ResponseTrailer() http.Header { return c.trailer }

// Receive fills the next request.
func (c *conn) Receive(m any) error { return c.requests.next(m.(proto.Message)) }

// Send writes one answer.
func (c *conn) Send(m any) error {
	if err := context.Cause(c.call.Context()); err != nil {
		return err
	}
	return c.answers.send(m.(proto.Message))
}

// answers write what a handler sends. The status goes out with the first answer, so an
// error before it has its own.
type answers interface {
	send(m proto.Message) error
	// end is called once, with the error of the call.
	end(trailer http.Header, err error)
}

// formOf chooses how the answers to the request are written.
func formOf(w http.ResponseWriter, r *http.Request, to *route, first requests) (answers, error) {
	offered := []string{"application/x-ndjson", "application/jsonl", "application/json", "text/event-stream"}
	switch {
	case to.Response != "":
		offered = []string{"application/octet-stream"}
	case !to.call.IsStreamingServer():
		offered = []string{"application/json"}
	}
	chosen, err := choose(r, offered...)
	switch {
	case err != nil:
		return nil, err
	case to.Response != "":
		return newRaw(w, to), nil
	case !to.call.IsStreamingServer():
		return &single{w: w, status: to.status}, nil
	case chosen == "text/event-stream":
		if one, ok := first.(*oneRequest); ok {
			return newLines(w, newSSE(one.m)), nil
		}
	}
	return newLines(w, ndjson{}), nil
}

// choose returns the kind of answer that the caller of r accepts, or refuses the call.
func choose(r *http.Request, offered ...string) (string, error) {
	accept := r.Header.Values("Accept")
	if kind := negotiate(accept, offered); kind != "" {
		return kind, nil
	}
	return "", &statusError{http.StatusNotAcceptable, nil, refuse("the header Accept asks for %q: give one of %s",
		sbxerr.Clip(strings.Join(accept, ", ")), strings.Join(offered, ", "))}
}

// negotiate returns the first of the accepted kinds that is offered, without weights.
func negotiate(accept, offered []string) string {
	list := strings.Join(accept, ",")
	if strings.TrimSpace(list) == "" {
		return offered[0]
	}
	for _, one := range strings.Split(list, ",") {
		kind, _, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}
		for _, o := range offered {
			whole, all := strings.CutSuffix(kind, "/*")
			if kind == o || kind == "*/*" || all && strings.HasPrefix(o, whole+"/") {
				return o
			}
		}
	}
	return ""
}

// single is the one answer to a stream of requests.
type single struct {
	w      http.ResponseWriter
	status int
	sent   bool
}

func (s *single) send(m proto.Message) error {
	s.sent = true
	writeMessage(s.w, s.status, m)
	return nil
}

func (s *single) end(_ http.Header, err error) {
	if !s.sent {
		writeError(s.w, err)
	}
}
