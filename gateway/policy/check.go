package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// check refuses rules that parse but must not be, or would do nothing.
func (r Rule) check() error {
	if err := r.checkScope(); err != nil {
		return err
	}
	if r.Action == ActDeny {
		return r.checkDeny()
	}
	if err := r.checkOpaque(); err != nil {
		return err
	}
	switch {
	case r.Wildcard:
		shortest := "a." + r.Name
		return cmp.Or(shortest.checkAsked(), r.Name.checkWildcard(r.Private))
	case r.Name != "":
		return cmp.Or(r.Name.checkAsked(), r.Name.checkExact(r.Private))
	}
	return r.checkAddresses()
}

// checkDeny is laxer than the check of rules that allow. To deny a public suffix or every
// address only narrows the policy.
func (r Rule) checkDeny() error {
	if r.Private {
		return errors.New("option \"private\" is for rules that allow; a denial covers private addresses as well")
	}
	if r.Opaque {
		return errors.New("option \"opaque\" is for rules that allow; a denial covers what is not read as well")
	}
	return nil
}

// checkOpaque refuses the option where it does nothing.
func (r Rule) checkOpaque() error {
	const why = "option \"opaque\" is for ports 80 and 443 of a name"
	switch {
	case !r.Opaque:
	case r.Name == "":
		return errors.New(why + "; connections to addresses are not read, so leave it out")
	case !slices.ContainsFunc(readPorts, r.covers):
		return errors.New(why + "; other ports are not read, so leave it out")
	}
	return nil
}

func (r Rule) checkAddresses() error {
	if r.Prefix.Bits() == 0 {
		return errors.New("covers every address; for every public host use the network mode open")
	}
	if r.Prefix.Overlaps(Pool) {
		return fmt.Errorf("its addresses overlap %s, from which the gateway gives each allowed name one", Pool)
	}
	first, last := Classify(r.Prefix.Addr()), Classify(lastOf(r.Prefix))
	if first != last {
		return nil // of several classes: only its public addresses are allowed
	}
	switch {
	case first.Grade == Never:
		return fmt.Errorf("its addresses are never reached: %s", first.Name)
	case first.Grade == Spelled && !r.Prefix.IsSingleIP():
		return fmt.Errorf("its addresses are %s: each must be spelled by a rule of its own", first.Name)
	case first.Grade < Public && !r.Private:
		r.Private = true
		return fmt.Errorf("its addresses are not public (%s); if that is meant, write %s", first.Name, r)
	}
	return nil
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// noWay says why connections to addresses of p, asked for without a name, never
// come to the gateway, so that no rule can allow them. It is empty if they do.
func noWay(p netip.Prefix) string {
	switch {
	case p.Addr().Is6():
		return "connections to literal IPv6 addresses have no way to the gateway; to those behind an allowed name they have"
	case p.Overlaps(loopback):
		return fmt.Sprintf("connections to loopback addresses (%s) have no way to the gateway: inside they are the sandbox's own", loopback)
	}
	return ""
}

// lastOf is the last address of p.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		if host := p.Bits() - 8*i; host < 8 {
			b[i] |= 0xff >> max(host, 0)
		}
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
