package route

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/secret"
	"github.com/caisson-run/caisson/gateway/usage"
)

// The bounds of a client's connection.
const (
	headTime = 10 * time.Second // for the head of a request
	idleTime = time.Minute      // between two requests
	headSize = 32 << 10         // bytes
	streams  = 100              // requests at once, of HTTP/2
)

// Limits bound the requests of a sandbox, each of which has a record. The zero Limits let none
// pass.
type Limits struct {
	PerSecond int   // sustained
	Burst     int   // at once, that begin
	AtOnce    int   // that are under way
	Held      int64 // bytes of bodies that are read before they are sent on
}

// DefaultLimits are more than programs with one model each need.
var DefaultLimits = Limits{PerSecond: 1000, Burst: 2000, AtOnce: 1024, Held: 64 << 20}

// Config is the routes of one sandbox.
type Config struct {
	Sandbox string // for records
	// Route returns the route that a name leads to now.
	Route func(policy.Name) (*policy.Routed, bool)
	// Dial connects to the upstream of a route that is asked in the given turn. Errors have a
	// code.
	Dial    func(ctx context.Context, route policy.Name, turn int) (net.Conn, error)
	Secrets *secret.Store
	Limits  Limits
	Roots   func() *x509.CertPool // of upstreams without roots of their own; nil trusts nobody
	Ledger  *budget.Ledger
	Bill    func() budget.Bill // which accounts of Ledger requests are counted in now
	Record  func(usage.Use)    // is told of each request when it is over; it must not block
}

// Server serves the routes of one sandbox.
type Server struct {
	config Config
	queue  *queue
	http   *http.Server
	rate   *rate.Limiter
	spare  ratelog.Log[usage.Use] // past rate
	places *semaphore.Weighted
	held   *semaphore.Weighted // bytes

	mu     sync.Mutex
	lanes  map[laneKey]*lane
	closed bool
}

// New makes a Server, which serves until Close.
func New(c Config) *Server {
	s := &Server{
		config: c, places: semaphore.NewWeighted(int64(c.Limits.AtOnce)), held: semaphore.NewWeighted(c.Limits.Held),
		rate: rate.NewLimiter(rate.Limit(c.Limits.PerSecond), c.Limits.Burst), queue: &queue{ready: make(chan net.Conn), end: make(chan struct{})}, lanes: map[laneKey]*lane{},
	}
	s.spare.Record = func(u usage.Use, skipped uint64) {
		u.Skipped = skipped
		c.Record(u)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // clients of gRPC speak nothing else
	s.http = &http.Server{
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}, Handler: s, ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: headSize, ErrorLog: silent,
		DisableGeneralOptionsHandler: true, Protocols: protocols,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, placeKey{}, c.(*arrived).at)
		},
	}
	go func() { _ = s.http.Serve(s.queue) }() // ends with the queue
	return s
}

// silent takes what package net/http would log: what it says of a request is no word of ours.
var silent = log.New(io.Discard, "", 0)

// placeKey is the key of the place that the connection of a request was made to.
type placeKey struct{}

// Serve takes over c, which a client made to a route.
func (s *Server) Serve(c net.Conn, at policy.Place) {
	select {
	case s.queue.ready <- &arrived{c, at}:
	case <-s.queue.end:
		_ = c.Close()
	}
}

// Close ends all requests and connections.
func (s *Server) Close() {
	_ = s.http.Close()
	s.spare.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for key, l := range s.lanes {
		delete(s.lanes, key)
		l.retireLocked()
	}
}

// arrived is a connection and the place that it was made to.
type arrived struct {
	net.Conn
	at policy.Place
}

// CloseWrite says that nothing more comes.
func (a *arrived) CloseWrite() error {
	if c, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// queue is a listener of connections that were accepted elsewhere.
type queue struct {
	ready chan net.Conn
	once  sync.Once
	end   chan struct{}
}

// Accept returns the next connection.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.ready:
		return c, nil
	case <-q.end:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.end) })
	return nil
}

// Addr is of no use.
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }
