package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

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
	roots := x509.NewCertPool()
	for _, der := range s.Authorities {
		if c, err := x509.ParseCertificate(der); err == nil {
			roots.AddCert(c)
		}
	}
	g := &guard{realms: s.Realms, stall: s.Stall, pause: s.Pause}
	var list []docker.RegistryHost
	for _, server := range s.Servers {
		g.servers = append(g.servers, server.Origin())
		config, err := tlsConfig(server, roots)
		if err != nil {
			return nil, sbxerr.New(sbxerr.DaemonConf, "registry.hosts", "%s: %w", server, err)
		}
		tr := docker.DefaultHTTPTransport(config)
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			f, err := s.dial(ctx)
			if err != nil {
				return nil, err
			}
			return socket{f}, nil
		}
		client := &http.Client{Transport: &transport{base: tr, guard: g}, CheckRedirect: checkRedirect}
		list = append(list, docker.RegistryHost{
			Client: client, Scheme: server.Scheme, Host: server.Host, Path: server.Path, Header: server.Header,
			Capabilities: docker.HostCapabilities(server.Capabilities),
			Authorizer:   docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthHeader(server.Header), docker.WithAuthCreds(s.credentials)),
		})
	}
	return list, nil
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

func tlsConfig(s imagework.Server, roots *x509.CertPool) (*tls.Config, error) {
	c := &tls.Config{RootCAs: roots, InsecureSkipVerify: s.SkipVerify} //nolint:gosec // of servers of this host alone
	if len(s.CA) > 0 {
		c.RootCAs = roots.Clone()
	}
	for _, pem := range s.CA {
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificate can be read of its ca")
		}
	}
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
