package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/mask"
	"github.com/caisson-run/caisson/gateway/route/tokens"
	"github.com/caisson-run/caisson/gateway/usage"
)

// maxInformed is how many answers 1xx an upstream may send for one request.
const maxInformed = 16

// ServeHTTP passes one request on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.Context().Value(placeKey{}).(policy.Place)
	name := at.Route
	use := &usage.Use{Sandbox: s.config.Sandbox, Name: name, Method: r.Method, Path: r.URL.Path, Begun: time.Now()}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &writer{ResponseWriter: w, at: at, use: use, cancel: cancel}
	if !s.rate.Allow() {
		out.refuse(sbxerr.New(sbxerr.EgressBusy, "route.request", "too many requests; try again later"))
		s.spare.Suppress(*use)
		return
	}
	defer out.record(s.spare.Add)
	l, err := s.lane(laneKey{name: name})
	if err != nil {
		out.refuse(err)
		return
	}
	defer func() { s.leave(l) }()
	out.takes(l)
	if err := check(r, at, l.route); err != nil {
		out.refuse(err)
		return
	}
	leave, err := s.enter(l, r)
	if err != nil {
		out.refuse(err)
		return
	}
	defer leave()
	r = r.WithContext(ctx)
	if !upgrades(r) || l.route.Git != nil {
		plain(r.Header)
	}
	billed, err := s.config.Ledger.Begin(s.config.Bill(), l.route.Label, l.route.Budget, use.Begun)
	if err != nil {
		out.refuseSpent(l.route, err)
		return
	}
	out.billed = billed
	defer out.settle(l.route)
	sent := r.Body
	r.Body = &body{Reader: r.Body, Closer: r.Body, n: &out.sent, pass: out.pass}
	if l.route.Git != nil && !l.passesGit(out, r) {
		return
	}
	if l, err = s.forModel(l, out, r); err != nil {
		out.refuse(err)
		return
	}
	if l.route.Ask {
		out.ask(r)
	}
	out.asked = true
	_ = http.NewResponseController(w).EnableFullDuplex() // an answer before the end of the body must not wait for that
	s.proxy(l, out, use).ServeHTTP(out, r)
	drain(w, r, sent)
}

// The bounds of what is read of a request after its answer.
const (
	drainBytes = 8 << 20
	drainTime  = time.Second
)

// drain reads what an upstream that answered early left of a body. With full duplex, package net/http
// would find its end when it has stopped to watch the connection, and break the next request.
func drain(w http.ResponseWriter, r *http.Request, body io.Reader) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 {
		return
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return // the connection is another protocol's now
	}
	_, _ = io.CopyN(io.Discard, body, drainBytes) // the client may be gone
	_ = c.SetReadDeadline(time.Time{})
}

// takes says which way the request goes.
func (w *writer) takes(l *lane) { w.mask, w.use.Credential = l.mask, l.route.Credential }

func (s *Server) proxy(l *lane, out *writer, use *usage.Use) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: l.way(out), BufferPool: buffers, FlushInterval: -1, ErrorLog: silent, Rewrite: l.rewrite,
		ModifyResponse: func(res *http.Response) error {
			if err := l.answer(out, res); err != nil {
				return sbxerr.WithRemedy(sbxerr.EgressRoute, "route.answer", err, "")
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			if spent := out.spent.Load(); spent != nil {
				out.refuseSpent(l.route, spent)
				return
			}
			if out.tooMany.Load() {
				err = sbxerr.New(sbxerr.EgressRoute, "route.answer", "the upstream sent more than %d answers 1xx", maxInformed)
			} else if errors.Is(err, context.Canceled) {
				use.Code, use.Reason = sbxerr.Canceled, "the client went away"
				panic(http.ErrAbortHandler)
			}
			if code := sbxerr.Of(err); code == sbxerr.Unknown || code == "" {
				err = sbxerr.New(sbxerr.EgressDial, "route.upstream", "the upstream does not answer as it should: %s", l.mask.String(err.Error()))
			}
			out.refuse(err)
		},
	}
}

// refuse answers for the upstream.
func (w *writer) refuse(err error) {
	n := policy.DenialOf(err)
	d, _ := sbxerr.Describe(n.Code)
	status := d.HTTP
	if n.Code == sbxerr.EgressRoute && w.asked {
		status = http.StatusBadGateway
	}
	w.use.Code = n.Code
	w.use.Reason = w.mask.String(policy.Cause(err)) // an upstream may have had a part in it
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Caisson-Code", string(n.Code))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, fmt.Sprintf("%s\n%s\n%s\n", n.Code, w.mask.String(n.Reason), n.Remedy)) // the client may be gone
}

// writer sees all that goes to a client, also answers 1xx, which come by no other way.
type writer struct {
	http.ResponseWriter
	at     policy.Place
	use    *usage.Use
	mask   *mask.Set
	cancel context.CancelFunc
	asked  bool // the upstream was
	batch  bool // it was asked for objects of Git LFS

	sent, received atomic.Int64 // bytes of bodies

	billed  *budget.Request
	spent   atomic.Pointer[budget.Spent] // why the request was cut; nil: it was not
	meter   *tokens.Meter                // of the answer; nil: it is not of a model
	unasked bool                         // the client did not ask for the usage that comes

	informed int
	tooMany  atomic.Bool
}

// WriteHeader counts and masks answers 1xx, and ends a request with too many of them. It runs
// on a goroutine of the transport, so it must not panic.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.use.Status = status
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.informed++; w.informed > maxInformed {
		w.tooMany.Store(true)
		w.cancel()
		return
	}
	clean(w.mask, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// record tells of the request, which is over.
func (w *writer) record(tell func(usage.Use)) {
	failed := recover() // http.ErrAbortHandler where an answer broke off
	if spent := w.spent.Load(); spent != nil {
		w.use.Code, w.use.Reason = sbxerr.Budget, spent.Error()
	} else if failed != nil && w.use.Code == "" {
		w.use.Code, w.use.Reason = sbxerr.Canceled, "the answer broke off"
	}
	u := *w.use
	u.Sent, u.Received, u.Duration = w.sent.Load(), w.received.Load(), time.Since(u.Begun)
	tell(u)
	if failed != nil {
		panic(failed)
	}
}

// buffers are for bodies.
var buffers = &pool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

type pool struct{ of sync.Pool }

// Get returns a buffer.
func (p *pool) Get() []byte { return p.of.Get().(*[32 << 10]byte)[:] }

// Put takes it back.
func (p *pool) Put(b []byte) { p.of.Put((*[32 << 10]byte)(b)) }
