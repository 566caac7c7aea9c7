package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Target is a destination that somebody asks about.
type Target struct {
	Name    Name       // or empty
	Address netip.Addr // of one without a name
	Port    uint16
	Path    string // of a URL with the scheme http, as on the wire; empty: it is not known
}

// portOf are the ports of URLs that name none.
var portOf = map[string]uint16{
	"http": 80, "ws": 80, "https": 443, "wss": 443, "ssh": 22, "git": 9418, "ftp": 21,
	"postgres": 5432, "postgresql": 5432, "mysql": 3306, "redis": 6379, "mongodb": 27017, "amqp": 5672,
}

const exampleTarget = "write for example https://api.example.com/, api.example.com:8443, or 203.0.113.5:22"

// ParseTarget reads a URL, HOST or HOST:PORT; without a port and a scheme that
// has one it is 443. Other text is refused with code sbxerr.NetPolicy.
func ParseTarget(s string) (Target, error) {
	t, err := parseTarget(s)
	if err != nil {
		return Target{}, sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.target", fmt.Errorf("destination %q: %w", sbxerr.Clip(s), err), exampleTarget)
	}
	return t, nil
}

func parseTarget(s string) (Target, error) {
	t := Target{Port: defaultPorts[1]}
	if len(s) > maxWritten {
		return t, fmt.Errorf("is longer than %d bytes", maxWritten)
	}
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" {
			return t, errors.New("is no URL with a host")
		}
		port, known := portOf[u.Scheme]
		if !known && u.Port() == "" {
			return t, fmt.Errorf("has the scheme %q, whose port is not known: write HOST:PORT", sbxerr.Clip(u.Scheme))
		}
		t.Port, s = port, u.Host
		if u.Scheme == "http" {
			t.Path = cmp.Or(u.EscapedPath(), "/")
		}
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		t.Address = addr.Unmap() // a connection to ::ffff:192.0.2.1 is one by IPv4
		return t, nil
	}
	return t, t.parseHostPort(s)
}

func (t *Target) parseHostPort(s string) error {
	host, port, has, err := splitPorts(s)
	if err != nil {
		return err
	}
	if has {
		if t.Port, err = parsePort(port); err != nil {
			return err
		}
	}
	if t.Address, err = netip.ParseAddr(host); err == nil {
		t.Address = t.Address.Unmap()
		return nil
	}
	t.Name, err = canonical(host)
	return err
}

// Check decides on t without resolving. An allowed name may still resolve to an address
// that is refused. The addresses of mapped names are known. To a path, a GET is decided on.
func (p *Policy) Check(t Target) Decision {
	if t.Name == "" {
		return p.DecideAddress(t.Address, t.Port)
	}
	if to, mapped := p.Mapped(t.Name, t.Port); mapped {
		return p.DecideResolved(t.Name, t.Port, to.Addr())
	}
	if t.Path != "" {
		return p.DecideRequest(t.Name, t.Port, "GET", t.Path)
	}
	return p.Decide(t.Name, t.Port)
}
