package registry

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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

// folders are beside them, and have certificates, too.
const folders = "/etc/ssl/certs:/etc/pki/tls/certs"

// Authorities returns the certificates that the host trusts, as PEM. A host without any has
// none.
func Authorities() []byte {
	for _, p := range append([]string{os.Getenv("SSL_CERT_FILE")}, bundles...) {
		if data := certificatesIn(p); data != nil {
			return data
		}
	}
	return nil
}

func certificatesIn(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil || len(data) > maxAuthorities || !bytes.Contains(data, []byte("CERTIFICATE-----")) || bytes.Contains(data, []byte("PRIVATE KEY")) {
		return nil
	}
	return data
}

// systemAuthorities are the certificates that crypto/x509 would find here, each once. Like those
// they are read once.
var systemAuthorities = sync.OnceValue(func() (list []byte) {
	all := [][]byte{Authorities()}
	for _, dir := range strings.Split(cmp.Or(os.Getenv("SSL_CERT_DIR"), folders), ":") {
		entries, _ := os.ReadDir(dir) // it need not be there
		for _, e := range entries {
			all = append(all, certificatesIn(filepath.Join(dir, e.Name())))
		}
	}
	seen := map[string]bool{}
	for _, data := range all {
		for b, rest := pem.Decode(data); b != nil; b, rest = pem.Decode(rest) {
			if b.Type == "CERTIFICATE" && !seen[string(b.Bytes)] {
				seen[string(b.Bytes)] = true
				list = append(list, pem.EncodeToMemory(b)...)
			}
		}
	}
	return list
})

// authorityFile is a file of them.
func authorityFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("authorities", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "authorities")
	_, err = f.Write(systemAuthorities())
	return f, err
}
