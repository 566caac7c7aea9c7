// Package reserved lists the addresses that no sandbox of the mode bridge reaches. The
// rules of its namespace and of the host are made of the list (package netns), and who
// records what they refused takes the reason from it.
package reserved

import "net/netip"

// Range is one of addresses that are sent nothing.
type Range struct {
	Prefix netip.Prefix
	Why    string
}

// Ranges do not overlap. Sources: the IANA special-purpose address registry (RFC 6890), and
// the documentation of the clouds for addresses of their metadata services that lie
// elsewhere.
var Ranges = []Range{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private (RFC 1918): the operator's machines, and other sandboxes"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier NAT (RFC 6598), with a metadata service of Alibaba"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the host of Azure's machines"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, with the metadata services of most clouds"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private (RFC 1918): the operator's machines"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments, with a metadata service of Oracle"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relays"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private (RFC 1918): the operator's machines"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks (RFC 2544)"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved, with broadcast"},
}

// Of is the range that holds addr, and false where none does.
func Of(addr netip.Addr) (Range, bool) {
	for _, r := range Ranges {
		if r.Prefix.Contains(addr) {
			return r, true
		}
	}
	return Range{}, false
}
