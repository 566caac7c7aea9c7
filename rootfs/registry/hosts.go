package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// hosts are the servers as containerd asks them.
func (s *session) hosts() ([]docker.RegistryHost, error) {
	for _, e := range s.Environment {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	g := &guard{realms: s.Realms, stall: s.Stall, pause: s.Pause}
	var list []docker.RegistryHost
	for _, server := range s.Servers {
		g.servers = append(g.servers, server.Origin())
		config, err := tlsConfig(server)
		if err != nil {
			return nil, sbxerr.New(sbxerr.DaemonConf, "registry.hosts", "%s: %w", server, err)
		}
		tr := docker.DefaultHTTPTransport(config)
		trust := sync.OnceValue(func() (err error) { // before any connection gets its copy
			config.RootCAs, err = s.roots(server)
			return err
		})
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, trust) }
		client := &http.Client{Transport: &transport{base: tr, guard: g}, CheckRedirect: checkRedirect}
		list = append(list, docker.RegistryHost{
			Client: client, Scheme: server.Scheme, Host: server.Host, Path: server.Path, Header: server.Header,
			Capabilities: docker.HostCapabilities(server.Capabilities),
			Authorizer:   docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthHeader(server.Header), docker.WithAuthCreds(s.credentials)),
		})
	}
	return list, nil
}

// dial gets a connection from the daemon for the request of ctx, and calls trust where it needs
// authorities.
func (s *session) dial(ctx context.Context, trust func() error) (net.Conn, error) {
	to, known := ctx.Value(targetKey{}).(*url.URL)
	if !known {
		return nil, sbxerr.New(sbxerr.Internal, opGuard, "a connection for no request")
	}
	if to.Scheme == "https" {
		if err := trust(); err != nil {
			return nil, err
		}
	}
	f, err := s.asker.Ask(ctx, imagework.Ask{Server: imagework.ServerOf(to)})
	if err != nil {
		return nil, err
	}
	return socket{f}, nil
}

// credentials are those for one server.
func (s *session) credentials(host string) (user, secret string, err error) {
	for _, server := range s.Servers {
		if server.Host == host {
			return server.User, server.Secret, nil
		}
	}
	return "", "", nil
}

// roots are the authorities of the host, and of one server. The files of its own were read before.
func (s *session) roots(server imagework.Server) (*x509.CertPool, error) {
	f, err := s.asker.Ask(context.Background(), imagework.Ask{Authorities: true})
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	own, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	pool := x509.NewCertPool()
	for _, pem := range append(server.CA, own) {
		pool.AppendCertsFromPEM(pem) // those of the host need not all be understood
	}
	return pool, err
}

func tlsConfig(s imagework.Server) (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: s.SkipVerify} //nolint:gosec // of servers of this host alone
	for _, own := range s.Certificates {
		key, err := x509.ParsePKCS8PrivateKey(own.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = append(c.Certificates, tls.Certificate{Certificate: own.Chain, PrivateKey: key})
	}
	return c, nil
}

// socket is a connection that the daemon made. It needs no call but those that files need.
type socket struct{ *os.File }

// LocalAddr implements net.Conn.
func (socket) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (socket) RemoteAddr() net.Addr { return &net.TCPAddr{} }
