package main

import (
	"crypto/x509"
	"os"
	"sync"
)

// bundles are where distributions keep the certificates that a host trusts, in the order of
// package crypto/x509.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Arch, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
	"/etc/ssl/cert.pem",
}

// hostRoots reads the certificates that the host trusts, while there are files, and returns
// what parses them when they are needed: that takes longer than a gateway's start may. Without
// any, no upstream is trusted but by roots of its route.
func hostRoots() func() *x509.CertPool {
	var text []byte
	for _, path := range bundles {
		if b, err := os.ReadFile(path); err == nil {
			text = b
			break
		}
	}
	return sync.OnceValue(func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		return pool
	})
}
