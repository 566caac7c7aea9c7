package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Host is the address of a daemon, and what a client proves itself with.
type Host struct {
	// URL is unix://PATH, tcp://HOST:PORT, which is by TLS, or ssh://[USER@]HOST[:PORT].
	URL string
	// Key is by which a client acts for a user, for tcp:// alone. KeyFile has it on one line.
	Key, KeyFile string
	// CA is a file with the certificates that sign the daemon's; empty trusts those of this host.
	CA string
	// Cert and CertKey are files with the certificate of the client and its key.
	Cert, CertKey string
}

// maxKey bounds the file of a key, in bytes.
const maxKey = 4 << 10

// Options are those of a client of h.
func (h Host) Options() (Options, error) {
	u, err := url.Parse(h.URL)
	if err != nil {
		return Options{}, h.wrong("it is no URL")
	}
	if u.Scheme != "tcp" && (h.Key+h.KeyFile+h.CA+h.Cert+h.CertKey != "") {
		return Options{}, h.wrong("keys and certificates are for tcp:// alone")
	}
	switch {
	case u.RawQuery != "" || u.Fragment != "":
		return Options{}, h.wrong("it has more than a place")
	case u.Scheme == "unix" && u.Host == "" && path.IsAbs(u.Path):
		return Options{Socket: u.Path}, nil
	case u.Scheme == "tcp" && u.Hostname() != "" && u.Port() != "" && strings.TrimSuffix(u.Path, "/") == "" && u.User == nil:
		return h.secured(u)
	case u.Scheme == "ssh" && sshName().MatchString(u.Hostname()) && strings.TrimSuffix(u.Path, "/") == "":
		return h.overSSH(u)
	}
	return Options{}, h.wrong("it is none of unix:///PATH, tcp://HOST:PORT and ssh://[USER@]HOST[:PORT]")
}

// sshName are hosts and users that are no flag of ssh's and need no quotes.
var sshName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`) })

func (h Host) wrong(why string) error {
	return Explain(sbxerr.WithRemedy(sbxerr.APIUsage, "api.host", fmt.Errorf("host %q: %s", sbxerr.Clip(withoutUser(h.URL)), why), "give a host such as tcp://build.example.com:7443 or ssh://ann@build.example.com"))
}

// withoutUser keeps a password out of messages.
func withoutUser(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if at := strings.LastIndex(rest, "@"); found && at >= 0 {
		return scheme + "://" + rest[at+1:]
	}
	return text
}

// secured is h by TLS. Nothing is sent without.
func (h Host) secured(u *url.URL) (Options, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
	if h.CA != "" {
		text, err := os.ReadFile(h.CA)
		if err != nil {
			return Options{}, Explain(sbxerr.Wrap(sbxerr.ClientIO, "api.host", err))
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return Options{}, Explain(sbxerr.New(sbxerr.ClientIO, "api.host", "file %q holds no certificate in PEM", h.CA))
		}
	}
	if h.Cert != "" || h.CertKey != "" {
		cert, err := tls.LoadX509KeyPair(h.Cert, h.CertKey)
		if err != nil {
			return Options{}, Explain(sbxerr.WithRemedy(sbxerr.ClientIO, "api.host", fmt.Errorf("the client's certificate: %w", err), "give its certificate and its key, both in PEM"))
		}
		config.Certificates = []tls.Certificate{cert}
	}
	key, err := h.key()
	if err != nil {
		return Options{}, err
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: config}
	return Options{Key: key, Dial: func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout) // of the handshake, too
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return nil, &dialError{h.URL, err}
		}
		return conn, nil
	}}, nil
}

func (h Host) key() (string, error) {
	key := h.Key
	if key == "" && h.KeyFile != "" {
		st, err := os.Stat(h.KeyFile)
		if err != nil {
			return "", Explain(sbxerr.Wrap(sbxerr.ClientIO, "api.host", err))
		}
		if st.Mode().Perm()&0o077 != 0 || st.Size() > maxKey {
			return "", Explain(sbxerr.WithRemedy(sbxerr.ClientIO, "api.host", fmt.Errorf("the key in %q can be read by others, or is no key", h.KeyFile), "chmod 600 "+h.KeyFile))
		}
		text, err := os.ReadFile(h.KeyFile)
		if err != nil {
			return "", Explain(sbxerr.Wrap(sbxerr.ClientIO, "api.host", err))
		}
		key = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", Explain(sbxerr.New(sbxerr.APIUsage, "api.host", "the key is not one word"))
	}
	return key, nil
}

// keyTransport shows the client's key with each request.
type keyTransport struct {
	http.RoundTripper
	key string
}

// RoundTrip implements [http.RoundTripper]. The header of connect's request is its own.
func (t keyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+t.key)
	return t.RoundTripper.RoundTrip(req)
}

// tlsRefused is what TLS says of a connection, or nil.
func tlsRefused(err error) error {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &verify):
		return verify
	case errors.As(err, &record):
		return errors.New("the other side does not speak TLS")
	case errors.As(err, &alert) && alert.Op == "remote error": // an alert of the other side
		return alert.Err
	}
	return nil
}
