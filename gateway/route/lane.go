package route

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/mask"
	"github.com/caisson-run/caisson/gateway/secret"
)

// The bounds of connections to an upstream.
const (
	idleUpstream  = 30 * time.Second // below what servers usually wait
	idlePerRoute  = 64
	handshakeTime = 10 * time.Second
	continueTime  = 5 * time.Second
	answerHead    = 256 << 10 // bytes
)

// lane is the way of one route to its upstream with one value of its credential. Connections
// may refer to the value as long as they are open. So a new value means a new lane.
type lane struct {
	route     *policy.Routed // of a model: its own
	key       secret.Value   // of the client's certificate; zero where the route has none
	value     secret.Value   // zero where the route has no credential
	placed    placed
	mask      *mask.Set // nil: nothing to mask
	transport *http.Transport
	down      []atomic.Int64 // by turn: until when an upstream that did not answer is asked last

	grants grants // of a registry

	// Under the server's lock.
	requests int
	retired  bool
}

// laneKey is a route, and the turn of the upstream of a model; 0 is for the others.
type laneKey struct {
	name policy.Name
	turn int
}

// lane returns the way for a request to a route, which ends it with leave.
func (s *Server) lane(key laneKey) (*lane, error) {
	const op = "route.lane"
	name := key.name
	r, ok := s.config.Route(name)
	if ok {
		r = r.Turn(key.turn)
	}
	if !ok || r == nil {
		return nil, sbxerr.New(sbxerr.EgressDenied, op, "the sandbox has no route %s any more", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sbxerr.New(sbxerr.Canceled, op, "the sandbox ended")
	}
	l := s.lanes[key]
	if l == nil || l.route != r && !reflect.DeepEqual(l.route.Route, r.Route) || r.Credential != "" && !s.config.Secrets.Current(l.value) || r.ClientKey != "" && !s.config.Secrets.Current(l.key) {
		next, err := s.newLane(key, r)
		if err != nil {
			return nil, err
		}
		if l != nil {
			l.retireLocked()
		}
		l = next
		s.lanes[key] = l
	}
	l.requests++
	return l, nil
}

func (s *Server) newLane(key laneKey, r *policy.Routed) (*lane, error) {
	const op = "route.lane"
	l := &lane{route: r, down: make([]atomic.Int64, r.Turns())}
	if r.Credential != "" {
		v, ok := s.config.Secrets.Use(r.Credential)
		if !ok {
			return nil, sbxerr.New(sbxerr.Secret, op, "the credential %q of the route %s has no value", r.Credential, r.Label)
		}
		p, err := place(r, v)
		if err != nil {
			v.Release()
			return nil, sbxerr.Wrap(sbxerr.Secret, op, err)
		}
		l.value, l.placed, l.mask = v, p, v.Mask()
	}
	certificates, err := s.certify(l)
	if err != nil {
		l.value.Release()
		return nil, err
	}
	roots := x509.NewCertPool()
	switch {
	case r.CA != "":
		roots.AppendCertsFromPEM([]byte(r.CA)) // the policy was refused if it holds none
	case r.Base.Scheme == "https" && s.config.Roots != nil:
		roots = s.config.Roots()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	l.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return s.config.Dial(ctx, key.name, cmp.Or(key.turn, turnTo(r, address)))
		},
		DisableCompression: true, MaxIdleConnsPerHost: idlePerRoute, IdleConnTimeout: idleUpstream,
		TLSHandshakeTimeout: handshakeTime, ExpectContinueTimeout: continueTime, MaxResponseHeaderBytes: answerHead,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12}, Protocols: protocols,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return l, nil
}

// leave ends a request.
func (s *Server) leave(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.requests--; l.retired {
		l.emptyLocked()
	}
}

// retireLocked has l end with its last request.
func (l *lane) retireLocked() {
	l.retired = true
	l.emptyLocked()
}

func (l *lane) emptyLocked() {
	if l.requests > 0 {
		return
	}
	l.transport.CloseIdleConnections()
	l.key.Release()
	l.value.Release() // the store keeps it until each connection has closed
}

// placed is a credential as it is put into a request. Its texts are not copied.
type placed struct {
	header, text string // the header and its value; none where the query holds the credential
	parameter    string // of the query, with its value
}

func place(r *policy.Routed, v secret.Value) (p placed, err error) {
	switch r.Placement {
	case policy.Bearer:
		p.header = "Authorization"
		p.text, err = v.Text("Bearer ")
	case policy.Basic:
		p.header = "Authorization"
		p.text, err = v.Basic(r.Parameter)
	case policy.Header:
		p.header = http.CanonicalHeaderKey(r.Parameter)
		p.text, err = v.Text("")
	case policy.Query:
		p.parameter, err = v.Query()
	default:
		err = fmt.Errorf("the placement %q is not known", r.Placement)
	}
	return p, err
}
