package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/server/rest"
)

// operation is one call, as the log and the stream of events tell it.
type operation struct {
	id     string            // of the request: the caller's, or made
	trace  string            // traceparent of the operation (W3C Trace Context, section 3.2)
	parent string            // span of the caller, if it sent one
	tell   func(sbxerr.Code) // of a call that fails, before that is answered; nil: nobody wants to know

	mu      sync.Mutex
	sandbox string // as the caller names it, or its ID
	exec    string
	err     error
	told    bool
}

type operationKey struct{}

// operations gives each call an ID, returns it with the answer, and writes one line of
// log for each call: refused ones too. Those become events as well.
func operations(h http.Handler, d Deps, plain *rest.Handler) http.Handler {
	quiet, known := quietCalls(plain), map[string]string{}
	for _, path := range paths() {
		known[path] = path
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := newOperation(r.Header, d.Traced)
		w.Header().Set(api.RequestIDHeader, op.id)
		w.Header().Set(api.TraceparentHeader, op.trace)
		begun := time.Now()
		ctx := events.WithTrace(events.WithRequestID(context.WithValue(r.Context(), operationKey{}, op), op.id), op.trace)
		op.tell = func(c sbxerr.Code) {
			call := cmp.Or(plain.Procedure(r), r.URL.Path)
			if isRefusal(c, quiet[call]) {
				d.Stream.Emit(ctx, op.refusal(ctx, call, c))
			}
		}
		defer func() {
			call, took := cmp.Or(plain.Procedure(r), r.URL.Path), time.Since(begun)
			code := op.log(r, d.Log, call, quiet[call], w.Header().Get(api.CodeHeader), took)
			if d.Called != nil {
				d.Called(op.over(known[call], code, begun, took, quiet[call]))
			}
		}()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (o *operation) over(procedure string, code sbxerr.Code, begun time.Time, took time.Duration, quiet bool) Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Call{procedure, code, begun, took, quiet, o.trace, o.parent, o.id, sbxerr.Clip(o.sandbox), sbxerr.Clip(o.exec)}
}

// isRefusal reports whether a failure is told as an event: not that a caller left, and of
// calls that change nothing only what the caller may not do.
func isRefusal(c sbxerr.Code, quiet bool) bool {
	row, _ := sbxerr.Describe(c)
	return c != sbxerr.Canceled && (!quiet || row.Class == sbxerr.ClassPolicy)
}

// refusal is the event of a call that failed. It is the caller's own.
func (o *operation) refusal(ctx context.Context, call string, c sbxerr.Code) events.Event {
	e := events.Event{Type: events.CallRefused, Scope: events.Scope{Host: true}, Data: events.Data{Call: sbxerr.Clip(call), Code: c, Name: sbxerr.Clip(o.sandbox), ExecID: sbxerr.Clip(o.exec)}}
	if caller, known := peer.FromContext(ctx); known {
		e.Scope = events.Scope{Owner: caller.UID, Parent: caller.Sandbox}
	}
	return e
}

// quietCalls change nothing, or are one keystroke of many: the log has them at level
// debug, and their errors at level info.
func quietCalls(plain *rest.Handler) map[string]bool {
	quiet := map[string]bool{
		caissonv1connect.SandboxServiceSpecProcedure:          true,
		caissonv1connect.NetworkServiceCheckPolicyProcedure:   true,
		caissonv1connect.NetworkServiceExplainPolicyProcedure: true,
		caissonv1connect.ExecServiceSendInputProcedure:        true,
		caissonv1connect.ExecServiceResizeProcedure:           true,
		healthCheck: true,
		healthWatch: true,
	}
	for _, procedure := range plain.Gets() {
		quiet[procedure] = true
	}
	return quiet
}

// requestID is what a caller may send as the ID of its request.
var requestID = regexp.MustCompile(`^[!-~]{1,128}$`)

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// newOperation takes the IDs of a header. What is no ID is as none: it is for the
// caller's records alone. A trace that begins here is kept if sampled says so.
func newOperation(header http.Header, sampled bool) *operation {
	var own [24]byte
	_, _ = rand.Read(own[:]) // never fails (crypto/rand)
	trace, parent, flags := hex.EncodeToString(own[:16]), "", "00"
	if sampled {
		flags = "01"
	}
	m := traceparent.FindStringSubmatch(header.Get(api.TraceparentHeader))
	if m != nil && strings.Trim(m[1], "0") != "" && strings.Trim(m[2], "0") != "" {
		trace, parent, flags = m[1], m[2], m[3]
	}
	op := &operation{id: trace, trace: "00-" + trace + "-" + hex.EncodeToString(own[16:]) + "-" + flags, parent: parent}
	if id := header.Get(api.RequestIDHeader); requestID.MatchString(id) {
		op.id = id
	}
	return op
}

// operationOf is the operation of a call; never nil.
func operationOf(ctx context.Context) *operation {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		return op
	}
	return &operation{}
}

// asked notes what a request names.
func (o *operation) asked(m any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := m.(interface{ GetRef() string }); ok && r.GetRef() != "" {
		o.sandbox = r.GetRef()
	}
	if r, ok := m.(interface{ GetId() string }); ok && r.GetId() != "" {
		o.exec = r.GetId()
	}
}

// answered notes what an answer names, and puts the request's ID into results.
func (o *operation) answered(m any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch m := m.(type) {
	case *caissonv1.Sandbox:
		o.sandbox = m.Id
	case *caissonv1.ExecEvent:
		if s := m.GetStarted(); s != nil {
			o.sandbox, o.exec = s.SandboxId, s.GetExec().GetId()
		}
		if r := m.GetExit(); r != nil {
			r.RequestId = o.id
		}
		if f := m.GetFinished(); f != nil {
			o.exec, f.Result.RequestId = f.Id, o.id
		}
	}
}

// failed notes the error of a call, and returns it with the request's ID.
func (o *operation) failed(err error) error {
	if err == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
	o.tellLocked(api.Explain(err).Code)
	var coded *connect.Error
	if !errors.As(err, &coded) || len(coded.Details()) == 0 {
		return err
	}
	told := *api.Explain(err)
	told.RequestID = o.id
	return failAs(coded.Code(), &told)
}

// tellLocked tells of a failure once: a caller gets one answer.
func (o *operation) tellLocked(c sbxerr.Code) {
	if o.tell != nil && !o.told {
		o.told = true
		o.tell(c)
	}
}

// log writes the line, and returns the code of a call that failed.
func (o *operation) log(r *http.Request, log *slog.Logger, call string, quiet bool, code string, took time.Duration) sbxerr.Code {
	o.mu.Lock()
	defer o.mu.Unlock()
	level, outcome := slog.LevelInfo, "ok"
	if o.err != nil {
		code = string(api.Explain(o.err).Code)
	}
	switch {
	case code != "":
		outcome = "error"
		o.tellLocked(sbxerr.Code(code)) // of one that no handler saw
	case quiet:
		level = slog.LevelDebug
	}
	if !log.Enabled(r.Context(), level) {
		return sbxerr.Code(code)
	}
	attrs := []slog.Attr{
		slog.String("call", sbxerr.Clip(call)), slog.String("request_id", o.id), slog.String("traceparent", o.trace),
		slog.String("caller", callerOf(r.Context())), slog.Duration("duration", took), slog.String("outcome", outcome),
	}
	for _, attr := range []slog.Attr{slog.String("code", code), slog.String("sandbox", sbxerr.Clip(o.sandbox)), slog.String("exec", sbxerr.Clip(o.exec))} {
		if attr.Value.String() != "" {
			attrs = append(attrs, attr)
		}
	}
	log.LogAttrs(context.WithoutCancel(r.Context()), level, "operation", attrs...)
	return sbxerr.Code(code)
}

func callerOf(ctx context.Context) string {
	if c, known := peer.FromContext(ctx); known {
		return c.String()
	}
	return "unknown"
}
