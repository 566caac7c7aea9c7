package policy

import (
	"net/netip"
	"slices"
)

// Grade is the rule that addresses of a class need. The zero Grade is the strictest.
type Grade int

// The grades, the strictest first.
const (
	Never   Grade = iota // no rule reaches them
	Spelled              // only a rule that spells the one address, with private
	Private              // a rule with private
	Public               // any rule
)

// Class is the purpose of an address.
type Class struct {
	Name  string // for people: "loopback"
	Grade Grade
}

// Pool is where the gateway gives each allowed name an address of the
// sandbox's own (RFC 2544, which nothing on the internet uses). No rule may
// name addresses in it.
var Pool = netip.MustParsePrefix("198.18.0.0/15")

// linkLocal holds the metadata services of clouds, each at an address of its own
// choice: 169.254.42.42 of Scaleway, 169.254.0.23 of Tencent.
var linkLocal = Class{"link-local (cloud metadata)", Spelled}

// The classes of the addresses that a site gives to its own hosts.
var (
	private4 = Class{"private (RFC 1918)", Private}
	private6 = Class{"unique local (RFC 4193)", Private}
)

// classes are looked up in order; the first that holds the address counts.
// Sources: the IANA special-purpose address registries (RFC 6890), and the
// documentation of the clouds for the addresses of their metadata services.
var classes = []struct {
	prefix netip.Prefix
	Class
}{
	{netip.MustParsePrefix("169.254.169.254/32"), Class{"cloud metadata", Spelled}},  // AWS, Azure, Google, others
	{netip.MustParsePrefix("169.254.170.2/32"), Class{"cloud metadata", Spelled}},    // AWS ECS
	{netip.MustParsePrefix("169.254.170.23/32"), Class{"cloud metadata", Spelled}},   // AWS EKS
	{netip.MustParsePrefix("100.100.100.200/32"), Class{"cloud metadata", Spelled}},  // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), Class{"cloud metadata", Spelled}},    // Azure's host
	{netip.MustParsePrefix("192.0.0.192/32"), Class{"cloud metadata", Spelled}},      // Oracle
	{netip.MustParsePrefix("fd00:ec2::/32"), Class{"cloud metadata", Spelled}},       // AWS
	{netip.MustParsePrefix("fd20:ce::254/128"), Class{"cloud metadata", Spelled}},    // Google
	{netip.MustParsePrefix("fd00:42::42/128"), Class{"cloud metadata", Spelled}},     // Scaleway
	{netip.MustParsePrefix("fe80::a9fe:a9fe/128"), Class{"cloud metadata", Spelled}}, // OpenStack
	{netip.MustParsePrefix("0.0.0.0/8"), Class{"this network", Never}},               // Linux takes 0.0.0.0 for loopback
	{netip.MustParsePrefix("224.0.0.0/4"), Class{"multicast", Never}},
	{netip.MustParsePrefix("240.0.0.0/4"), Class{"reserved", Never}}, // with broadcast
	{netip.MustParsePrefix("10.0.0.0/8"), private4},
	{netip.MustParsePrefix("172.16.0.0/12"), private4},
	{netip.MustParsePrefix("192.168.0.0/16"), private4},
	{netip.MustParsePrefix("127.0.0.0/8"), Class{"loopback", Private}},
	{netip.MustParsePrefix("169.254.0.0/16"), linkLocal},
	{netip.MustParsePrefix("100.64.0.0/10"), Class{"carrier NAT (RFC 6598)", Private}},
	{Pool, Class{"benchmark (RFC 2544)", Private}},
	{netip.MustParsePrefix("192.0.0.0/24"), Class{"protocol assignments", Private}},
	{netip.MustParsePrefix("192.0.2.0/24"), Class{"documentation", Private}},
	{netip.MustParsePrefix("198.51.100.0/24"), Class{"documentation", Private}},
	{netip.MustParsePrefix("203.0.113.0/24"), Class{"documentation", Private}},
	{netip.MustParsePrefix("192.88.99.0/24"), Class{"6to4 relay", Private}},
	{netip.MustParsePrefix("0.0.0.0/0"), Class{"public", Public}},
	{netip.MustParsePrefix("::/128"), Class{"unspecified", Never}},
	{netip.MustParsePrefix("ff00::/8"), Class{"multicast", Never}},
	{netip.MustParsePrefix("::1/128"), Class{"loopback", Private}},
	{netip.MustParsePrefix("::ffff:0:0/96"), Class{"IPv4-mapped IPv6", Private}},
	{netip.MustParsePrefix("::/96"), Class{"IPv4-compatible IPv6", Private}},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), Class{"IPv4-translated IPv6", Private}},
	{netip.MustParsePrefix("64:ff9b::/96"), Class{"NAT64 (RFC 6052)", Private}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), Class{"NAT64 (RFC 8215)", Private}},
	{netip.MustParsePrefix("2002::/16"), Class{"6to4", Private}},
	{netip.MustParsePrefix("2001::/32"), Class{"Teredo", Private}},
	{netip.MustParsePrefix("2001::/23"), Class{"protocol assignments", Private}},
	{netip.MustParsePrefix("2001:db8::/32"), Class{"documentation", Private}},
	{netip.MustParsePrefix("3fff::/20"), Class{"documentation", Private}},
	{netip.MustParsePrefix("fc00::/7"), private6},
	{netip.MustParsePrefix("fe80::/10"), linkLocal},
	{netip.MustParsePrefix("fec0::/10"), Class{"site-local", Private}},
	{netip.MustParsePrefix("2000::/3"), Class{"public", Public}}, // all that IANA gives out
	{netip.MustParsePrefix("::/0"), Class{"outside of global unicast", Private}},
}

// Classify returns the class of addr. An IPv6 address that embeds an IPv4 address is at
// least as strict as that address: a translator on the way would unwrap it.
func Classify(addr netip.Addr) Class {
	if !addr.IsValid() || addr.Zone() != "" {
		return Class{"no plain address", Never}
	}
	own := lookup(addr)
	class := own
	for _, inner := range carried(addr) {
		if c := lookup(inner); c.Grade < class.Grade {
			class = Class{c.Name + " inside " + own.Name, c.Grade}
		}
	}
	return class
}

// Local reports whether an address is the host's own. A connection to it would reach the
// host's services.
type Local func(netip.Addr) (bool, error)

// On returns p for a host with these own addresses. They are not public there.
func (p *Policy) On(host Local) *Policy {
	if p == nil {
		return nil
	}
	there := *p
	there.local, there.over = host, make(chan struct{})
	return &there
}

// classify returns the class of addr under p. An address of unknown class is refused.
func (p *Policy) classify(addr netip.Addr) Class {
	class := Classify(addr)
	if class.Grade != Public || p.local == nil {
		return class
	}
	switch own, err := p.local(addr); {
	case err != nil:
		return Class{"nobody knows whether it is the host's own: " + err.Error(), Never}
	case own:
		return Class{"the host's own", Private}
	}
	return class
}

// onSite reports whether the policy leads to addr because it is one of the site, and not of
// the host itself.
func (p *Policy) onSite(class Class, addr netip.Addr) bool {
	if !p.site || class != private4 && class != private6 {
		return false
	}
	if p.local == nil {
		return true
	}
	own, err := p.local(addr)
	return err == nil && !own
}

func lookup(addr netip.Addr) Class {
	for _, c := range classes {
		if c.prefix.Contains(addr) {
			return c.Class
		}
	}
	return Class{}
}

// carried lists the IPv4 addresses that an IPv6 one stands for: mapped,
// compatible, translated, NAT64, 6to4 and Teredo.
func carried(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	v4 := func(b0, b1, b2, b3 byte) netip.Addr { return netip.AddrFrom4([4]byte{b0, b1, b2, b3}) }
	last := v4(b[12], b[13], b[14], b[15])
	switch lookup(addr).Name {
	case "IPv4-mapped IPv6", "IPv4-compatible IPv6", "IPv4-translated IPv6", "NAT64 (RFC 6052)":
		return []netip.Addr{last}
	case "NAT64 (RFC 8215)": // with a prefix of 96 or 48 bits (RFC 6052, 2.2)
		both := []netip.Addr{last, v4(b[6], b[7], b[9], b[10])}
		return slices.DeleteFunc(both, netip.Addr.IsUnspecified)
	case "6to4":
		return []netip.Addr{v4(b[2], b[3], b[4], b[5])}
	case "Teredo": // the client's, inverted (RFC 4380, 4)
		return []netip.Addr{v4(^b[12], ^b[13], ^b[14], ^b[15])}
	}
	return nil
}
