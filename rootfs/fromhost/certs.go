package fromhost

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
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
func (c *collector) certificates() error {
	for _, p := range bundles {
		if err := c.certificate(p, false); err != nil {
			return err
		}
	}
	r, err := c.tree.resolve(certDir)
	if err != nil || !r.info.isDir() {
		return ignoreSkippable(err)
	}
	names, err := c.tree.list(r.path, maxNames)
	if err != nil {
		return ignoreSkippable(err)
	}
	for _, n := range names {
		if err := c.certificate(path.Join(r.path, n), true); err != nil {
			return err
		}
	}
	if err := c.put(&Entry{Path: r.path, Kind: Dir, Mode: 0o755, For: "certificates"}); err != nil {
		return err
	}
	return c.certificateLinks()
}

// certificateLinks adds the other names of what certificates has added.
func (c *collector) certificateLinks() error {
	for _, l := range certLinks {
		at, err := c.tree.resolve(l)
		if err != nil || c.set[at.path] == nil {
			continue
		}
		if err := c.passed(at.links, origin{why: "certificates"}); err != nil {
			return err
		}
	}
	return nil
}

// certificate adds where p leads, and the links on the way, if it is a file of
// certificates: of authorities, if single.
func (c *collector) certificate(p string, single bool) error {
	r, err := c.tree.resolve(p)
	if err != nil {
		return ignoreSkippable(err)
	}
	if _, never := neverCopied(r.path); never || !r.info.isRegular() {
		return nil
	}
	if c.set[r.path] == nil {
		content, err := c.tree.readFile(r.path, maxCertificates)
		if err != nil {
			return ignoreSkippable(err)
		}
		if err := checkCertificates(content, single); err != nil {
			return nil // it is no certificate, so it is not copied
		}
		err = c.put(&Entry{
			Path: r.path, Kind: File, Mode: 0o644, Size: int64(len(content)), ModTime: r.info.mtime.Sec,
			Content: content, For: "certificates",
		})
		if err != nil {
			return err
		}
	}
	return c.passed(r.links, origin{why: "certificates"})
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

// ignoreSkippable drops an error that is about one path.
func ignoreSkippable(err error) error {
	if err == nil || skippable(err) || errors.Is(err, errTooBig) {
		return nil
	}
	return err
}
