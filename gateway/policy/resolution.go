package policy

import "net/netip"

// Resolution holds the addresses of a name.
type Resolution struct {
	Addresses []netip.Addr
	Aliases   []Name // the names in between: each is a CNAME of the one before (RFC 1034, 3.6.2)
}

// DecideAliases refuses name where one of the names that it is an alias of is denied: a
// name of somebody else's must not lead past a rule. Which rule allows name does not
// matter, as deny beats allow.
func (p *Policy) DecideAliases(name Name, aliases []Name, port uint16) Decision {
	for _, alias := range aliases {
		for r := range p.deny.about(alias) {
			if r.covers(port) {
				return p.denied(r, join(name, port)+", an alias of "+string(alias)+",")
			}
		}
	}
	return Decision{Allowed: true}
}
