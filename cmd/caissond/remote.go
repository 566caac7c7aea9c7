package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/keys"
	"github.com/caisson-run/caisson/page"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/doctor"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/server/remote"
)

// remoteSite is the API for callers from the network before it is served.
type remoteSite struct {
	net.Listener
	credentials remote.Credentials
	book        *keys.Book
	page        bool
}

// listenRemote takes the address of the API for the network, with its certificates and keys; nil
// where the configuration has none. Nobody is served yet.
func (d *daemon) listenRemote(c config.Config) (*remoteSite, error) {
	if c.Listen.TCP == "" {
		return nil, nil
	}
	credentials, err := remoteCredentials(c.Listen, time.Now())
	if err != nil {
		return nil, err
	}
	book, err := keys.Open(c.Root)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.Listen.TCP)
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.remote", fmt.Errorf("listen.tcp: %w", err), addressRemedy(err))
	}
	d.onStop(func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return &remoteSite{l, credentials, book, c.Listen.Page}, nil
}

func addressRemedy(err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return "end what listens there (ss -ltnp shows it), or choose another port"
	}
	return "give an address that this host has (ip addr), and a port that is free"
}

// remoteCredentials reads the certificates of the API for the network, and refuses those with
// which nobody could connect, and a key that others can read.
func remoteCredentials(l config.Listen, now time.Time) (c remote.Credentials, err error) {
	cert, err := readBounded(l.Cert, nil)
	if err != nil {
		return c, refuseTLS("cert", err, "give a file with the certificate in PEM, then those between it and its root")
	}
	key, err := readBounded(l.Key, checkOwn)
	if err != nil {
		return c, refuseTLS("key", err, "give a file that root alone can read: chmod 600 "+l.Key)
	}
	if c.Certificate, err = tls.X509KeyPair(cert, key); err != nil {
		return c, refuseTLS("cert", err, "give the certificate that belongs to listen.key, both in PEM")
	}
	if err := inForce(c.Certificate.Leaf, now); err != nil {
		return c, refuseTLS("cert", err, "renew the certificate, or set the clock of the host")
	}
	if l.ClientCA == "" {
		return c, nil
	}
	text, err := readBounded(l.ClientCA, nil)
	if err == nil {
		c.ClientCAs, err = clientCAs(text, now)
	}
	return c, refuseTLS("client_ca", err, "give a file with certificates in PEM that sign those of clients")
}

// expiresSoon is how long before its end a certificate is told of.
const expiresSoon = 14 * 24 * time.Hour

// remoteChecks tell of the certificate of the API for the network.
func remoteChecks(c config.Config, now time.Time) []runtime.Check {
	if c.Listen.TCP == "" {
		return nil
	}
	check := runtime.Check{Name: "listen", Status: doctor.OK}
	credentials, err := remoteCredentials(c.Listen, now)
	if err != nil {
		told := api.Explain(err)
		check.Status, check.Detail, check.Code, check.Remedy = doctor.Warn, told.Error(), string(told.Code), told.Remedy
		return []runtime.Check{check}
	}
	until := credentials.Certificate.Leaf.NotAfter
	check.Detail = fmt.Sprintf("%s, with a certificate until %s", c.Listen.TCP, until.UTC().Format(time.RFC3339))
	if until.Sub(now) < expiresSoon {
		check.Status, check.Remedy = doctor.Warn, "renew the certificate, put it in the place of the old one, and run caisson config reload"
	}
	return []runtime.Check{check}
}

func refuseTLS(key string, err error, remedy string) error {
	if err == nil {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.remote", fmt.Errorf("listen.%s: %w", key, err), remedy)
}

func inForce(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate of %q has expired: it was for the time until %s", c.Subject, c.NotAfter.Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate of %q is for the time from %s on", c.Subject, c.NotBefore.Format(time.RFC3339))
	}
	return nil
}

func clientCAs(text []byte, now time.Time) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a %s", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = inForce(c, now)
		}
		if err != nil {
			return nil, err
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, errors.New("it holds no certificate")
	}
	return pool, nil
}

// readBounded reads a file of certificates that check accepts.
func readBounded(path string, check func(*os.File) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold the daemon
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read only
	if check != nil {
		if err := check(f); err != nil {
			return nil, fmt.Errorf("file %q %w", path, err)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCA+1))
	if err == nil && len(data) > maxCA {
		err = fmt.Errorf("file %q is longer than %d bytes", path, maxCA)
	}
	return data, err
}

// refusedRemote is a connection or request from the network without a right to be there.
type refusedRemote struct {
	address string
	err     error
}

// serveRemote serves the API to the network, until ctx ends.
func (d *daemon) serveRemote(ctx, last context.Context, s *remoteSite, handler http.Handler) {
	if s == nil {
		return
	}
	refused := &ratelog.Log[refusedRemote]{Record: func(r refusedRemote, skipped uint64) {
		d.log.Info("refused from the network", "address", r.address, "code", string(sbxerr.Of(r.err)), "err", api.Explain(r.err), "skipped", skipped)
		d.tell(peer.NewContext(context.Background(), peer.Caller{}), events.CallRefused, events.Data{Call: "connect", Code: sbxerr.Of(r.err), Address: r.address, Skipped: skipped})
	}}
	o := remote.Options{
		API: handler, Book: s.book, Log: d.log,
		Admit:   func(c peer.Caller) error { return d.policy.Load().Admit(c) },
		Refused: func(address string, why error) { refused.Suppress(refusedRemote{address, why}) },
	}
	if s.page {
		o.File = page.ServeFile
	}
	srv := remote.New(s.credentials, o)
	d.remote.Store(srv)
	done := make(chan struct{})
	d.onStop(func(context.Context) error {
		<-done
		refused.Flush()
		return s.book.Save()
	})
	d.log.Info("the API is served to the network", "address", s.Addr().String(), "client_certificates", s.credentials.ClientCAs != nil)
	go d.followKeys(ctx, s.book)
	go func() {
		defer close(done)
		if err := srv.Serve(ctx, last, s); err != nil {
			d.log.Error("serve the API to the network", "err", err)
		}
	}()
}

// keyInterval is how long the daemon takes to notice a key that was made or removed.
const keyInterval = time.Second

// followKeys takes keys that are made and drops those that are removed, until ctx ends.
func (d *daemon) followKeys(ctx context.Context, book *keys.Book) {
	tick := time.NewTicker(keyInterval)
	defer tick.Stop()
	broken := ""
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		added, removed, err := book.Refresh()
		if text := fmt.Sprint(err); err != nil && text != broken {
			d.log.Error("no key counts until their file can be read", "err", api.Explain(err))
			broken = text
		} else if err == nil {
			broken = ""
		}
		for _, k := range removed {
			d.tellKey(ctx, events.KeyRemoved, k)
		}
		for _, k := range added {
			d.tellKey(ctx, events.KeyAdded, k)
		}
		if n%60 == 59 {
			if err := book.Save(); err != nil {
				d.log.Warn("keep when keys were used", "err", err)
			}
		}
	}
}

func (d *daemon) tellKey(ctx context.Context, t events.Type, k keys.Key) {
	d.log.Info(string(t), "name", k.Name, "uid", k.UID, "admin", k.Admin, "certificate", k.Certificate)
	d.tell(ctx, t, events.Data{Credential: k.Name, Reason: fmt.Sprintf("uid %d", k.UID)})
}

// reloadRemote reads the certificates again. The returned function puts them in force.
func (d *daemon) reloadRemote(c config.Config) (use func(), err error) {
	srv := d.remote.Load()
	if srv == nil {
		return func() {}, nil
	}
	credentials, err := remoteCredentials(c.Listen, time.Now())
	return func() { srv.Use(credentials) }, err
}
