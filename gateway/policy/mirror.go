package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// mirror is where a mapped name leads.
type mirror struct {
	addr netip.Addr
	port uint16 // 0 keeps the one that was connected to
}

const exampleMap = "write for example pypi.org: 10.1.2.3, or pypi.org: 10.1.2.3:8443, or pypi.org: [fd00::3]:8443"

func parseMap(written map[string]string) (map[Name]mirror, error) {
	mirrors := map[Name]mirror{}
	var errs []error
	for _, host := range slices.Sorted(maps.Keys(written)) {
		name, m, err := parseMirror(host, written[host])
		if _, twice := mirrors[name]; err == nil && twice {
			err = errors.New("the name is mapped twice")
		}
		if err != nil {
			errs = append(errs, sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.map",
				fmt.Errorf("map %q: %q: %w", sbxerr.Clip(host), sbxerr.Clip(written[host]), err), remedyFor(err, exampleMap)))
			continue
		}
		mirrors[name] = m
	}
	return mirrors, errors.Join(errs...)
}

func parseMirror(host, target string) (Name, mirror, error) {
	name, err := canonical(host)
	if err != nil {
		return "", mirror{}, fmt.Errorf("the name %w", err)
	}
	if err := name.checkAsked(); err != nil {
		return "", mirror{}, err
	}
	m, err := parseAddressPort(target)
	if err != nil {
		return "", mirror{}, err
	}
	switch c := Classify(m.addr); {
	case m.addr.Is4In6():
		return "", mirror{}, fmt.Errorf("write the IPv4 address as %s", m.addr.Unmap())
	case c.Grade < Private, Pool.Contains(m.addr):
		return "", mirror{}, fmt.Errorf("no mirror is at this address: %s", c.Name)
	}
	return name, m, nil
}

func parseAddressPort(s string) (mirror, error) {
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return mirror{addr: addr}, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 {
		return mirror{addr: ap.Addr(), port: ap.Port()}, nil
	}
	colon := max(0, strings.LastIndexByte(s, ':'))
	if _, err := netip.ParseAddr(strings.Trim(s[:colon], "[]")); err == nil && s[colon:] != ":" {
		return mirror{}, fmt.Errorf("port %q is not a number from 1 to 65535", sbxerr.Clip(s[colon+1:]))
	}
	return mirror{}, errors.New("is not ADDRESS or ADDRESS:PORT; names are not resolved here")
}

// cited is the mirror of name as decisions name it.
func (m mirror) cited(name Name) string {
	if m.port == 0 {
		return fmt.Sprintf("map %s=%s", name, m.addr)
	}
	return fmt.Sprintf("map %s=%s", name, netip.AddrPortFrom(m.addr, m.port))
}

// Mapped returns where a connection to port of name goes if the name is
// mapped, and nobody is asked for its address.
func (p *Policy) Mapped(name Name, port uint16) (netip.AddrPort, bool) {
	if p == nil {
		return netip.AddrPort{}, false
	}
	m, ok := p.mirrors[name]
	return netip.AddrPortFrom(m.addr, cmp.Or(m.port, port)), ok
}
