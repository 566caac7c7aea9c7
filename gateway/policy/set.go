package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Set is hosts without ports. The zero Set is empty.
type Set struct{ hosts index }

// ParseSet reads names, wildcards (*.NAME), addresses and CIDRs. It reports all
// that are none; the errors have no code.
func ParseSet(texts []string) (Set, error) {
	s := Set{newIndex()}
	var errs []error
	for _, text := range texts {
		var r Rule
		if err := r.parseMember(text); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", sbxerr.Clip(text), err))
			continue
		}
		s.hosts.add(r)
	}
	return s, errors.Join(errs...)
}

func (r *Rule) parseMember(text string) error {
	_, addrErr := netip.ParseAddr(text)
	switch {
	case len(text) > maxRule:
		return fmt.Errorf("is longer than %d bytes", maxRule)
	case strings.Contains(text, "://"):
		return errors.New("is a URL; write the host alone")
	case text == "*" || text == "*.":
		return errors.New("covers every host")
	case strings.Contains(text, ":") && !strings.Contains(text, "/") && addrErr != nil:
		return errors.New("holds a colon: write the host alone, without a port, and IPv6 addresses without brackets")
	}
	return r.parseHost(text)
}

// HasName reports whether n is in s, itself or by a wildcard.
func (s Set) HasName(n Name) bool {
	for range s.hosts.about(n) {
		return true
	}
	return false
}

// HasAddress reports whether addr is in s.
func (s Set) HasAddress(addr netip.Addr) bool {
	for range s.hosts.within(addr) {
		return true
	}
	return false
}

// Worldwide reports whether n is a name of the internet by its form: below a suffix of
// publicsuffix.org. Those of one site are not: localhost, printer, db.corp,
// metadata.google.internal. Neither is anything below arpa, which holds no hosts but
// home.arpa (RFC 8375).
func (n Name) Worldwide() bool {
	suffix, icann := publicsuffix.PublicSuffix(string(n))
	listed := icann || strings.Contains(suffix, ".") // else it is the last label of whatever name
	return listed && n.public() && !strings.HasSuffix(string(n), ".arpa")
}

// AllowsPublic reports whether a rule allows any port of name at public addresses only.
func (p *Policy) AllowsPublic(name Name) bool {
	allowed := func(d Decision) bool { return d.Allowed && !d.Private }
	switch {
	case p.Mode() == None:
		return false
	case allowed(p.DecideLookup(name)):
		return true
	}
	for _, port := range p.named(name) {
		if allowed(p.Decide(name, port)) {
			return true
		}
	}
	return false
}
