package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// Spec is the proxy as the operator writes it.
type Spec struct {
	URL         string   // http://HOST:PORT or socks5://HOST:PORT
	Except      []string // names, *.NAME, addresses and CIDRs that are reached without it
	Credentials Secret   // USER:PASSWORD; the zero Secret is none
}

// Secret is a text that can be sent but not seen: whatever prints or encodes it shows a
// mask. It sits in a closure, because fmt does not ask unexported fields for theirs.
type Secret struct{ reveal func() string }

// NewSecret hides s.
func NewSecret(s string) Secret { return Secret{func() string { return s }} }

// Reveal returns the text, empty for the zero Secret.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

const mask = "***"

// Format prints the mask for every verb.
func (Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, mask) }

// MarshalText is the mask for encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }

// scheme is how a proxy is spoken to.
type scheme string

const (
	schemeHTTP   scheme = "http"
	schemeSOCKS5 scheme = "socks5"
)

// Proxy is a compiled Spec. It is never changed, so it can be shared.
type Proxy struct {
	Name    policy.Name // of the proxy's host; empty if it is written as an address
	Address netip.Addr  // of one without a name
	Port    uint16

	spec   Spec
	scheme scheme
	except policy.Set
}

// Spec is what u was compiled from; for a nil u it has no URL.
func (u *Proxy) Spec() Spec {
	if u == nil {
		return Spec{}
	}
	return u.spec
}

const exampleURL = "write for example http://proxy.example.com:3128 or socks5://192.0.2.7:1080"

// Compile checks s. It reports all that is wrong with it, with code
// sbxerr.DaemonConf, and shows no credentials.
func Compile(s Spec) (*Proxy, error) {
	u := &Proxy{spec: s}
	var exceptErr error
	u.except, exceptErr = policy.ParseSet(s.Except)
	err := errors.Join(
		wrap("url", u.parseURL(s.URL), exampleURL),
		wrap("except", exceptErr, "write for example intern.example.com, *.corp.example or 192.0.2.0/24"),
		wrap("credentials", checkCredentials(s.Credentials.Reveal()), "write one line, USER:PASSWORD"),
	)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.DaemonConf, "upstream.compile", err)
	}
	return u, nil
}

func wrap(key string, err error, remedy string) error {
	if err == nil {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.DaemonConf, "upstream.compile", fmt.Errorf("network.upstream_proxy.%s: %w", key, err), remedy)
}

// parseURL never repeats a URL that may hold a password.
func (u *Proxy) parseURL(text string) error {
	if strings.Contains(text, "@") {
		return errors.New("holds credentials, which everybody may see: put USER:PASSWORD into a file and name it by credentials")
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" {
		return fmt.Errorf("%q is no URL with a host", text)
	}
	switch u.scheme = scheme(parsed.Scheme); {
	case parsed.Scheme == "https":
		return fmt.Errorf("%q has the scheme https: TLS to the proxy itself is not offered", text)
	case u.scheme != schemeHTTP && u.scheme != schemeSOCKS5:
		return fmt.Errorf("%q has the scheme %q, which is neither http nor socks5", text, parsed.Scheme)
	case parsed.Path != "" && parsed.Path != "/" || parsed.RawQuery != "" || parsed.Fragment != "":
		return fmt.Errorf("%q has more than a scheme, a host and a port", text)
	}
	return u.parseHost(parsed.Hostname(), parsed.Port())
}

func (u *Proxy) parseHost(host, port string) error {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("port %q is not a number from 1 to 65535, and none is taken for granted", port)
	}
	u.Port = uint16(number)
	if u.Address, err = netip.ParseAddr(host); err == nil {
		if u.Address.Zone() != "" || policy.Classify(u.Address).Grade == policy.Never || policy.Pool.Contains(u.Address) {
			return fmt.Errorf("no proxy is at the address %s", host)
		}
		return nil
	}
	if u.Name, err = policy.ParseName(host); err != nil {
		return err
	}
	return nil
}

// maxField is what SOCKS5 has room for, in bytes.
const maxField = 255

// checkCredentials never repeats them.
func checkCredentials(text string) error {
	if text == "" {
		return nil
	}
	user, password, found := strings.Cut(text, ":")
	switch {
	case !found || user == "" || password == "":
		return errors.New("have no user, colon and password")
	case len(user) > maxField || len(password) > maxField:
		return fmt.Errorf("have a user or a password of more than %d bytes", maxField)
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("hold a control character, such as the end of a line")
	}
	return nil
}

// String is the proxy as messages name it, without credentials.
func (u *Proxy) String() string {
	host := string(u.Name)
	if host == "" {
		host = u.Address.String()
	}
	return fmt.Sprintf("%s://%s", u.scheme, joinHostPort(host, u.Port))
}
