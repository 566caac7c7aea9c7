package imageservice

import (
	"bytes"
	"os"
)

// maxAuthorities bounds a file of certificates; bundles are near 250 KiB.
const maxAuthorities = 16 << 20

// bundles are the files in which TLS libraries look for the authorities that they trust, on the
// systems there are.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}

// authorities returns the certificates that the host trusts, as PEM. A host without any has
// none.
func authorities() []byte {
	for _, p := range append([]string{os.Getenv("SSL_CERT_FILE")}, bundles...) {
		data, err := os.ReadFile(p)
		if err == nil && len(data) <= maxAuthorities && bytes.Contains(data, []byte("CERTIFICATE-----")) && !bytes.Contains(data, []byte("PRIVATE KEY")) {
			return data
		}
	}
	return nil
}
