package imagework

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// Registry is a repository of a registry, and all that the process learns of the configuration.
type Registry struct {
	Host       string `json:"host"`       // HOST[:PORT], as its name has it
	Repository string `json:"repository"` // HOST/PATH
	Reference  string `json:"reference"`  // with a tag or a digest

	Servers     []Server  `json:"servers"`          // that stand for the registry, the first to ask first
	Realms      []string  `json:"realms,omitempty"` // hosts beside them that may give tokens
	Environment []string  `json:"environment"`      // which proxies there are, as NAME=VALUE
	Until       time.Time `json:"until"`            // when the daemon ends it

	Stall time.Duration `json:"stall"` // how long a registry may send nothing
	Pause time.Duration `json:"pause"` // before the second try; doubles for each further one
}

// Server is one server of a registry.
type Server struct {
	Scheme       string      `json:"scheme"`
	Host         string      `json:"host"`
	Path         string      `json:"path"`
	Capabilities uint8       `json:"capabilities"` // docker.HostCapabilities
	Header       http.Header `json:"header,omitempty"`

	CA           [][]byte      `json:"ca,omitempty"` // PEM
	Certificates []Certificate `json:"certificates,omitempty"`
	SkipVerify   bool          `json:"skip_verify,omitempty"`

	User   string `json:"user,omitempty"` // as containerd takes them: without one the secret is an identity token
	Secret string `json:"secret,omitempty"`
}

// String keeps credentials out of messages and logs.
func (s Server) String() string { return s.Origin() }

// Origin is what its credentials are for.
func (s Server) Origin() string { return Origin(&url.URL{Scheme: s.Scheme, Host: s.Host}) }

// Certificate is a client's.
type Certificate struct {
	Chain [][]byte `json:"chain"` // DER
	Key   []byte   `json:"key"`   // PKCS #8
}

// Ask is what the process asks the daemon for: a connection, the certificates that the host trusts,
// as PEM, or the file for what it fetches.
type Ask struct {
	Server      string `json:"server,omitempty"` // as ServerOf has it
	Authorities bool   `json:"authorities,omitempty"`
	File        int    `json:"file,omitempty"` // the ID of a Fetch
}

// Fetch has content of the repository written to a file.
type Fetch struct {
	ID         int                `json:"id"`
	Document   ocispec.Descriptor `json:"document,omitzero"`    // or
	Layer      ocispec.Descriptor `json:"layer,omitzero"`       // of which a part may be in the file, or
	Signatures []digest.Digest    `json:"signatures,omitempty"` // of these, as JSON
}

// Fetched says that a Fetch is done, or why not.
type Fetched struct {
	ID      int                `json:"id"`
	Failure *imageproc.Failure `json:"failure,omitempty"`
}

// Bounds of what is read of signatures.
const (
	MaxSignatures = 64      // documents for one image: manifests of signatures, and signatures
	MaxSigned     = 1 << 20 // bytes of one document
)

// ServerOf is the server of an address: SCHEME://HOST[:PORT].
func ServerOf(u *url.URL) string { return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() }

// Origin is a server in one form, with its port.
func Origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return strings.ToLower(u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port))
}

// Loopback reports whether a HOST[:PORT] can only be this host.
func Loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}
