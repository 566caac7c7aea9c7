package route

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// certify returns the certificate that l shows its upstream, with the key in a secret. It is in
// ordinary memory from then on: package crypto/tls has no other place for it.
func (s *Server) certify(l *lane) ([]tls.Certificate, error) {
	const op = "route.client"
	r := l.route
	if r.ClientKey == "" {
		return nil, nil
	}
	v, ok := s.config.Secrets.Use(r.ClientKey)
	if !ok {
		return nil, sbxerr.New(sbxerr.Secret, op, "the key %q of the client's certificate of the route %s has no value", r.ClientKey, r.Label)
	}
	text, err := v.Text("")
	if err == nil {
		var pair tls.Certificate
		if pair, err = pairOf(r.ClientCert, text); err == nil {
			l.key = v
			return []tls.Certificate{pair}, nil
		}
	}
	v.Release()
	return nil, sbxerr.Wrap(sbxerr.Secret, op, fmt.Errorf("the key %q of the client's certificate of the route %s: %w", r.ClientKey, r.Label, err))
}

// pairOf joins certificates and their key. Its errors say nothing of the key.
func pairOf(certificates, key string) (tls.Certificate, error) {
	der, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return tls.Certificate{}, errors.New("it is not in base64")
	}
	if _, err := x509.ParsePKCS8PrivateKey(der); err != nil {
		return tls.Certificate{}, errors.New("it is no private key in the form PKCS #8")
	}
	return tls.X509KeyPair([]byte(certificates), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
