// Package rest serves the calls of the API by plain HTTP: by the routes that the
// annotations in api/caisson/v1 name, with JSON bodies, one JSON object on each line of
// a stream, and raw bytes where a route says so. It translates for the handlers that
// Connect serves, and holds nothing of what they do.
package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/apijson"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// Options are what a Handler is made of.
type Options struct {
	// Services serve the calls of one answer, by the full names of the services.
	Services map[string]any
	// Streams serve all other calls.
	Streams *Streams
	// Unary makes a call of one answer: by next, as the interceptors of Connect do.
	Unary func(ctx context.Context, procedure string, request proto.Message, next Call) (proto.Message, error)
}

// Prefix is that of the paths of all routes.
const Prefix = "/v1/"

// Call makes a call whose request was read.
type Call func(context.Context) (proto.Message, error)

// Handler serves all routes.
type Handler struct {
	o      Options
	routes []*route
}

// New returns a handler for every annotated call.
func New(o Options) *Handler { return &Handler{o: o, routes: routes()} }

// Procedure is the call that r is for, such as "/caisson.v1.ExecService/Start";
// empty: none.
func (h *Handler) Procedure(r *http.Request) string { return procedure(h.routes, r) }

// Procedures returns [Handler.Procedure] for those who pass requests on to a Handler.
func Procedures() func(*http.Request) string {
	all := routes()
	return func(r *http.Request) string { return procedure(all, r) }
}

func procedure(all []*route, r *http.Request) string {
	if !strings.HasPrefix(r.URL.Path, Prefix) {
		return ""
	}
	found, _ := lookUp(all, r)
	if found.route == nil {
		return ""
	}
	return found.route.procedure
}

// Gets are the calls that a route reaches by GET: they change nothing.
func (h *Handler) Gets() []string {
	var list []string
	for _, r := range h.routes {
		if r.Method == http.MethodGet {
			list = append(list, r.procedure)
		}
	}
	return list
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	match, err := find(h.routes, r)
	if err != nil {
		writeError(w, err)
		return
	}
	if err := checkHeaders(r, match.route); err != nil {
		writeError(w, err)
		return
	}
	if match.route.stream() {
		h.serveStream(w, r, match)
		return
	}
	answer, err := h.unary(w, r, match)
	if err != nil {
		writeError(w, err)
		return
	}
	writeMessage(w, match.route.status, answer)
}

// unary reads the one request of a call, and makes the call.
func (h *Handler) unary(w http.ResponseWriter, r *http.Request, m match) (proto.Message, error) {
	if _, err := choose(r, "application/json"); err != nil {
		return nil, err
	}
	request, err := readRequest(w, r, m)
	if err != nil {
		return nil, err
	}
	return h.o.Unary(r.Context(), m.route.procedure, request, func(ctx context.Context) (proto.Message, error) {
		return call(ctx, h.o.Services[m.route.service], m.route.method, request)
	})
}

// call calls a method that Connect's generated interfaces declare:
// (context.Context, *connect.Request[T]) (*connect.Response[U], error).
func call(ctx context.Context, service any, method string, request proto.Message) (proto.Message, error) {
	f := reflect.ValueOf(service).MethodByName(method)
	wrapped := reflect.New(f.Type().In(1).Elem())
	wrapped.Elem().FieldByName("Msg").Set(reflect.ValueOf(request))
	out := f.Call([]reflect.Value{reflect.ValueOf(ctx), wrapped})
	if err, _ := out[1].Interface().(error); err != nil {
		return nil, err
	}
	return out[0].Elem().FieldByName("Msg").Interface().(proto.Message), nil
}

// serveStream makes a call whose requests or answers are a stream.
func (h *Handler) serveStream(w http.ResponseWriter, r *http.Request, m match) {
	if m.route.bidi() { // net/http would read the whole body before the first answer (RFC 9112, 9.6)
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			writeError(w, err)
			return
		}
		if r.ProtoMajor == 1 { // with full duplex, a body that nobody read breaks the next request
			w.Header().Set("Connection", "close")
		}
	}
	requests, err := requestsOf(w, r, m)
	if err != nil {
		writeError(w, err)
		return
	}
	answers, err := formOf(w, r, m.route, requests)
	if err != nil {
		writeError(w, err)
		return
	}
	c := &conn{call: r, route: m.route, requests: requests, answers: answers, header: http.Header{}, trailer: http.Header{}}
	err = h.o.Streams.serve(r.Context(), c)
	if errors.Is(err, io.EOF) { // what a handler says when the caller has said all
		err = nil
	}
	c.answers.end(c.trailer, err)
}

// Streams keeps the handlers of streams that Connect makes, with all interceptors.
type Streams struct {
	handlers map[string]connect.StreamingHandlerFunc
}

// Option has the handlers that are made with it kept. It comes before all options that
// add interceptors.
func (s *Streams) Option() connect.HandlerOption {
	s.handlers = map[string]connect.StreamingHandlerFunc{}
	return connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		return []connect.HandlerOption{connect.WithInterceptors(keeper{s, spec.Procedure})}
	})
}

func (s *Streams) serve(ctx context.Context, c *conn) error {
	serve, ok := s.handlers[c.route.procedure]
	if !ok {
		return sbxerr.New(sbxerr.Internal, "rest.stream", "%s has no handler", c.route.procedure)
	}
	return serve(ctx, c)
}

// keeper is an interceptor that changes nothing.
type keeper struct {
	streams   *Streams
	procedure string
}

// WrapUnary implements [connect.Interceptor].
func (keeper) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingClient implements [connect.Interceptor].
func (keeper) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (k keeper) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	k.streams.handlers[k.procedure] = next
	return next
}

func writeMessage(w http.ResponseWriter, status int, m proto.Message) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(apijson.Marshal(apijson.Readable(m)[0]), '\n')) // a caller that has gone needs no answer
}
