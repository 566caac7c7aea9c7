// Package identity gets the node's certificates from the cluster, by signing requests, and renews
// them before they expire.
package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
)

// Config says whose certificates these are.
type Config struct {
	Node string
	Dir  string // keeps them, and their keys
	Log  *slog.Logger
}

// subject is what the Node authorizer knows a node by.
func (c Config) subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:" + c.Node, Organization: []string{"system:nodes"}}
}

func (c Config) manager(name, signer string, use certificates.KeyUsage, template *x509.CertificateRequest,
	client func(*tls.Certificate) (kubernetes.Interface, error)) (certificate.Manager, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	store, err := certificate.NewFileStore(name, c.Dir, c.Dir, "", "")
	if err != nil {
		return nil, err
	}
	m, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: client, GetTemplate: func() *x509.CertificateRequest { return template }, SignerName: signer,
		Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, use}, CertificateStore: store,
	})
	if err == nil {
		m.Start()
	}
	return m, err
}

// Client returns the configuration of a client with the node's own certificate. Where there is none
// yet, bootstrap's identity asks for it.
func (c Config) Client(ctx context.Context, bootstrap *rest.Config) (*rest.Config, error) {
	own := rest.AnonymousClientConfig(bootstrap)
	current := filepath.Join(c.Dir, "client-current.pem") // key and certificate, replaced when renewed
	own.CertFile, own.KeyFile = current, current
	m, err := c.manager("client", certificates.KubeAPIServerClientKubeletSignerName, certificates.UsageClientAuth, &x509.CertificateRequest{Subject: c.subject()},
		func(has *tls.Certificate) (kubernetes.Interface, error) {
			if has == nil || time.Now().After(has.Leaf.NotAfter) {
				return kubernetes.NewForConfig(bootstrap)
			}
			return kubernetes.NewForConfig(own)
		})
	if err != nil {
		return nil, err
	}
	for told := false; m.Current() == nil; {
		if !told {
			c.Log.Info("the node waits for its client certificate", "signer", certificates.KubeAPIServerClientKubeletSignerName)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second / 5):
		}
	}
	return own, nil
}

// errUnsigned is what clients of a node get that has no certificate.
var errUnsigned = errors.New("the node's serving certificate is not approved yet: kubectl certificate approve")

// Serving asks for a certificate for the node's address, which a person or a controller approves.
// The function returns the one that counts.
func (c Config) Serving(client kubernetes.Interface, address string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	template := &x509.CertificateRequest{Subject: c.subject(), DNSNames: []string{c.Node}}
	if ip := net.ParseIP(address); ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	m, err := c.manager("serving", certificates.KubeletServingSignerName, certificates.UsageServerAuth, template,
		func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil })
	if err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if has := m.Current(); has != nil {
			return has, nil
		}
		c.Log.Warn("a client was turned away", "error", errUnsigned)
		return nil, errUnsigned
	}, nil
}
