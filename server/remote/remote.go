// Package remote serves the API to callers from the network, over TLS alone. Each shows a key
// with each request, or a certificate with its connection, by which it acts for a user.
//
// Everything fails closed: a request without a key that counts does not reach the API, and a
// connection that shows none for a while is closed.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/keys"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/server/rest"
)

// Credentials are what the listener shows, and by whom certificates of clients are signed.
type Credentials struct {
	Certificate tls.Certificate
	ClientCAs   *x509.CertPool // nil: clients show none
}

// Options are what a Server needs.
type Options struct {
	API   http.Handler
	Book  *keys.Book
	Admit func(peer.Caller) error
	// File serves what needs no key, and reports whether r asked for that. It may be nil.
	File func(w http.ResponseWriter, r *http.Request) bool
	// Refused is told of each connection and request without a right to be there. It must not
	// block.
	Refused func(address string, why error)
	Log     *slog.Logger
}

// Server is the API over TLS.
type Server struct {
	o           Options
	credentials atomic.Pointer[Credentials]
	doors       *doors
}

// New returns a Server that shows c until the next Use.
func New(c Credentials, o Options) *Server {
	s := &Server{o: o, doors: newDoors(o.Refused)}
	s.Use(c)
	return s
}

// Use has new connections see c. Those that are there go on, unless their certificate is signed
// by none of c's any more.
func (s *Server) Use(c Credentials) { s.credentials.Store(&c) }

// config is that of each handshake. Sessions are not resumed: a certificate is checked each time.
func (s *Server) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.credentials.Load()
			config := &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
				Certificates: []tls.Certificate{c.Certificate}, SessionTicketsDisabled: true,
			}
			if c.ClientCAs != nil {
				config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, c.ClientCAs
			}
			return config, nil
		},
	}
}

// Serve serves l until ctx ends. Calls under way then have until last ends. l is closed.
func (s *Server) Serve(ctx, last context.Context, l net.Listener) error {
	srv := server.NewHTTP(http.HandlerFunc(s.call))
	srv.Protocols.SetUnencryptedHTTP2(false)
	srv.Protocols.SetHTTP2(true)
	srv.TLSConfig = s.config()
	srv.ErrorLog = slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug) // of each bad handshake, too
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		if srv.Shutdown(last) != nil {
			_ = srv.Close() // what is left is cut off
		}
	})
	defer stop()
	go s.watch(ctx)
	err := srv.ServeTLS(&listener{Listener: l, doors: s.doors}, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return err
}

type connKey struct{}

// call lets a request through whose caller is known and admitted.
func (s *Server) call(w http.ResponseWriter, r *http.Request) {
	secured, _ := r.Context().Value(connKey{}).(*tls.Conn)
	if secured == nil || r.TLS == nil {
		panic(http.ErrAbortHandler) // no connection of the listener
	}
	c, _ := secured.NetConn().(*conn)
	if s.o.File != nil && s.o.File(w, r) {
		s.doors.harmless(c)
		return
	}
	key, err := s.identify(r)
	who := peer.Remote(key.UID, key.GID, key.Name)
	if err == nil {
		err = s.o.Admit(who)
	}
	if err == nil {
		err = c.admit(identity{key: key, chain: r.TLS.PeerCertificates})
	}
	if err != nil {
		s.refuse(w, r, c, err)
		return
	}
	r.Header.Del("Authorization")
	s.o.API.ServeHTTP(w, r.WithContext(peer.NewContext(r.Context(), who)))
}

// identify returns the key that a request shows, or else that of its connection's certificate.
func (s *Server) identify(r *http.Request) (keys.Key, error) {
	now := time.Now()
	if err := s.trusted(r.TLS.PeerCertificates, now); err != nil {
		return keys.Key{}, err
	}
	shown := r.Header.Values("Authorization")
	switch {
	case len(shown) == 0 && len(r.TLS.PeerCertificates) > 0:
		if byBrowser(r) { // which shows a certificate also for a page of anybody's
			return keys.Key{}, sbxerr.New(sbxerr.KeyRefused, "remote.identify", "a browser is known by a key alone, not by its certificate")
		}
		return s.o.Book.Named(namesOf(r.TLS.PeerCertificates[0]), now)
	case len(shown) == 0:
		return keys.Key{}, sbxerr.New(sbxerr.KeyRefused, "remote.identify", "the request shows no key")
	case len(shown) > 1:
		return keys.Key{}, sbxerr.New(sbxerr.KeyRefused, "remote.identify", "the request shows several keys")
	}
	scheme, secret, _ := strings.Cut(shown[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return keys.Key{}, sbxerr.New(sbxerr.KeyRefused, "remote.identify", "the header Authorization is not Bearer and a key")
	}
	return s.o.Book.Find(secret, now)
}

// byBrowser reports whether a browser sent r (Fetch Metadata, RFC 6454).
func byBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Sec-Fetch-Mode") != ""
}

// trusted refuses a connection whose certificate has expired since the handshake, or is not
// signed as it must be now.
func (s *Server) trusted(chain []*x509.Certificate, now time.Time) error {
	cas := s.credentials.Load().ClientCAs
	switch {
	case cas == nil:
		return nil
	case len(chain) == 0:
		return sbxerr.New(sbxerr.KeyRefused, "remote.trusted", "the connection has no certificate, which is needed now")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: cas, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return sbxerr.Wrap(sbxerr.KeyRefused, "remote.trusted", err)
}

// namesOf are the names by which a certificate may be that of a key.
func namesOf(c *x509.Certificate) []string {
	names := append(append([]string{}, c.DNSNames...), c.EmailAddresses...)
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// refuse answers without a look at the body, and ends the connection.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, c *conn, err error) {
	if s.o.Refused(c.address, err); sbxerr.Of(err) == sbxerr.KeyRefused {
		s.doors.failed(c)
	}
	w.Header().Set("Connection", "close")
	w.Header().Set("WWW-Authenticate", "Bearer")
	if strings.HasPrefix(r.URL.Path, rest.Prefix) && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		row, _ := sbxerr.Describe(sbxerr.Of(err))
		rest.Refuse(w, row.HTTP, err)
		return
	}
	_ = writer.Write(w, r, api.Encode(err)) // who does not read it knows no better
}

var writer = connect.NewErrorWriter()

// watch closes connections whose keys or certificates no longer count.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Check()
		}
	}
}

// Check closes connections whose keys or certificates no longer count, and calls of users who
// are no peers any more.
func (s *Server) Check() {
	now := time.Now()
	s.doors.closeUnless(func(i identity) bool {
		byCertificate := i.key.Certificate || s.credentials.Load().ClientCAs != nil
		return s.o.Book.Counts(i.key, now) && s.o.Admit(peer.Remote(i.key.UID, i.key.GID, i.key.Name)) == nil &&
			(!byCertificate || s.trusted(i.chain, now) == nil)
	})
}

// identity is by what a connection was let in.
type identity struct {
	key   keys.Key
	chain []*x509.Certificate
}
