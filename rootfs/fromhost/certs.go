package fromhost

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path"
)

// maxCertificates bounds one file of certificates; bundles are near 250 KiB.
const maxCertificates = 16 << 20

// bundles are the files in which TLS libraries look for the authorities that
// they trust, on the systems there are.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}

// certDir holds one file for each authority and links by hash to them; and
// certLinks are how OpenSSL, with its own compiled-in directory, gets there.
const certDir = "/etc/ssl/certs"

var certLinks = []string{"/usr/lib/ssl/certs", "/usr/lib/ssl/cert.pem"}

// certificates adds the authorities that the host trusts. The files are made
// by scripts, so packages do not list them. Nothing but certificates is taken:
// a private key in the wrong place stays behind, and so does the certificate of
// the host itself (ssl-cert-snakeoil.pem), which is no authority.
func (c *collector) certificates() {
	for _, p := range bundles {
		c.certificate(p, false)
	}
	r, err := c.resolve(certDir)
	if err != nil {
		return
	}
	names, _ := os.ReadDir(c.real(r.path)) // not missed
	for _, n := range names {
		c.certificate(path.Join(r.path, n.Name()), true)
	}
	c.dir(r.path)
	for _, l := range certLinks {
		c.chain(l, origin{}) // what leads to another file below /etc stays behind
	}
}

// certificate adds where p leads, and the links on the way, if it is a file of
// certificates: of authorities, if single. Any other file is not missed.
func (c *collector) certificate(p string, single bool) {
	r, err := c.resolve(p)
	if err != nil || !r.info.Mode().IsRegular() || r.info.Size() > maxCertificates {
		return
	}
	content, err := os.ReadFile(c.real(r.path))
	if err == nil && checkCertificates(content, single) == nil {
		c.take(r, origin{})
	}
}

// checkCertificates reports whether data is anything but certificates. With
// authorities, each must be one that may sign others.
func checkCertificates(data []byte, authorities bool) error {
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return errors.New("it holds a private key")
	}
	found := false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" && block.Type != "TRUSTED CERTIFICATE" {
			return fmt.Errorf("it holds a %.40q", block.Type)
		}
		found = true
		if !authorities || block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		// Version 1 knows no constraints; some old authorities have it.
		if !cert.IsCA && cert.Version > 1 {
			return errors.New("it is no authority's certificate")
		}
	}
	if !found {
		return errors.New("it holds no certificate")
	}
	return nil
}
