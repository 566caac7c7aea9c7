package rest

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/strictjson"
)

const (
	maxBody = 4 << 20   // of JSON, in bytes: as much as one message of Connect
	piece   = 128 << 10 // of a raw body in one message, in bytes
)

// checkHeaders refuses what no route reads.
func checkHeaders(r *http.Request, to *route) error {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &statusError{http.StatusUnsupportedMediaType, nil, refuse("the body has the encoding %q: send it without one", sbxerr.Clip(e))}
	}
	if !to.takesJSON() {
		if to.Body == "" && r.ContentLength != 0 {
			return refuse("%s %s takes no body: put the fields into the query", to.Method, to.Path)
		}
		return nil
	}
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "", "application/json", "application/x-www-form-urlencoded": // the last is what curl -d says of any body
		return nil
	default:
		return &statusError{http.StatusUnsupportedMediaType, nil, refuse("the body is %q: send application/json", sbxerr.Clip(kind))}
	}
}

// readRequest reads a request of one message: the body, then path and query.
func readRequest(w http.ResponseWriter, r *http.Request, m match) (proto.Message, error) {
	request := newMessage(m.route.call.Input())
	if m.route.takesJSON() {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return nil, bodyError(err)
		}
		if err := readBody(body, request, m.route.Inline); err != nil {
			return nil, err
		}
	}
	return request, setFields(request.ProtoReflect(), r, m, "")
}

func readBody(body []byte, request proto.Message, inline string) error {
	switch {
	case len(body) == 0:
		return nil
	case inline != "":
		return strictjson.UnmarshalInline(body, request, inline)
	}
	return strictjson.Unmarshal(body, request)
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	var refusal *connect.Error
	switch {
	case errors.As(err, &tooLarge):
		return &statusError{http.StatusRequestEntityTooLarge, nil, refuse("the body is larger than %d bytes", tooLarge.Limit)}
	case errors.As(err, &refusal), sbxerr.Of(err) != sbxerr.Unknown: // a bound of the daemon
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("the body ended before it was whole")
	}
	return sbxerr.Wrap(sbxerr.Canceled, "rest.request", err)
}

// setFields sets what path and query hold, but for the field except.
func setFields(request protoreflect.Message, r *http.Request, m match, except string) error {
	for name, value := range m.fields {
		if err := setField(request, name, value); err != nil {
			return err
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse("the query %q cannot be read: %v", sbxerr.Clip(r.URL.RawQuery), err)
	}
	for name, values := range query {
		if name == except {
			continue
		}
		to, err := holderOf(request, name, m.route.Inline)
		if err != nil {
			return err
		}
		for _, value := range values {
			if err := setField(to, name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// holderOf returns the message that has the field name: request, or that in its field inline.
func holderOf(request protoreflect.Message, name, inline string) (protoreflect.Message, error) {
	if inline == "" {
		return request, nil
	}
	outer, _, _ := strings.Cut(name, ".")
	switch fieldOf(request, outer) {
	case nil:
		return request.Mutable(fieldOf(request, inline)).Message(), nil
	case fieldOf(request, inline):
		return nil, refuse("there is no field %q: its fields stand alone, without %s.", sbxerr.Clip(name), inline)
	}
	return request, nil
}

// newMessage returns an empty message of the generated type.
func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil { // every message of the API is generated
		return dynamicpb.NewMessage(d)
	}
	return kind.New().Interface()
}

// requests are those of a stream's caller, in order. next fills m, or returns [io.EOF].
type requests interface {
	next(m proto.Message) error
}

// requestsOf reads as much of a stream as its form needs before the first answer.
func requestsOf(w http.ResponseWriter, r *http.Request, m match) (requests, error) {
	if m.route.Body != "" {
		return newRawBody(r, m)
	}
	request, err := readRequest(w, r, m)
	if err == nil {
		err = resume(request.ProtoReflect(), r)
	}
	return &oneRequest{request}, err
}

// oneRequest is one message.
type oneRequest struct{ m proto.Message }

func (o *oneRequest) next(m proto.Message) error {
	if o.m == nil {
		return io.EOF
	}
	proto.Merge(m, o.m)
	o.m = nil
	return nil
}

// rawBody is a message with the fields of path and query, then one for each piece of
// the body, and where a field belongs to the last request one with that.
type rawBody struct {
	body  io.Reader
	field protoreflect.Name
	first proto.Message // nil: it was given
	last  proto.Message // nil: none, or given
	buf   []byte
	live  bool // answers flow meanwhile: no piece waits until it is full
}

func newRawBody(r *http.Request, m match) (*rawBody, error) {
	b := &rawBody{body: r.Body, live: m.route.bidi(), field: protoreflect.Name(m.route.Body), first: newMessage(m.route.call.Input())}
	into := b.first.ProtoReflect()
	if m.route.Header != "" {
		into = into.Mutable(fieldOf(into, m.route.Header)).Message()
	}
	if m.route.Last != "" && r.URL.Query().Has(m.route.Last) {
		b.last = newMessage(m.route.call.Input())
		if err := setField(b.last.ProtoReflect(), m.route.Last, r.URL.Query().Get(m.route.Last)); err != nil {
			return nil, err
		}
	}
	return b, setFields(into, r, m, m.route.Last)
}

func (b *rawBody) next(m proto.Message) error {
	if b.first != nil {
		proto.Merge(m, b.first)
		b.first = nil
		return nil
	}
	if b.buf == nil {
		b.buf = make([]byte, piece)
	}
	read := io.ReadFull
	if b.live {
		read = io.Reader.Read
	}
	n, err := read(b.body, b.buf)
	switch {
	case n > 0 && (err == nil || b.live || errors.Is(err, io.ErrUnexpectedEOF)):
		into := m.ProtoReflect()
		into.Set(into.Descriptor().Fields().ByName(b.field), protoreflect.ValueOfBytes(b.buf[:n]))
		return nil
	case errors.Is(err, io.EOF) && b.last != nil:
		proto.Merge(m, b.last)
		b.last = nil
		return nil
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return bodyError(err)
}

// fieldOf is a field of a message that an annotation names.
func fieldOf(m protoreflect.Message, name string) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(protoreflect.Name(strings.TrimSpace(name)))
}
