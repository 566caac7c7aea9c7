package policy

import (
	"net/netip"
	"slices"
)

// merge sorts prefixes and drops those that another one contains.
func merge(all []netip.Prefix) []netip.Prefix {
	var kept []netip.Prefix
	// Of two with one address the wider one comes first.
	for _, p := range slices.SortedFunc(slices.Values(all), netip.Prefix.Compare) {
		if n := len(kept); n == 0 || !kept[n-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept
}

// appendWithout adds what is left of p, sorted, where except is taken out. It ends with more than
// Most: a long list of exceptions splits a range into millions. All prefixes are masked.
func appendWithout(all []netip.Prefix, p netip.Prefix, except []netip.Prefix) []netip.Prefix {
	if len(all) > Most {
		return all
	}
	var within []netip.Prefix
	for _, e := range except {
		switch {
		case !e.Overlaps(p):
		case e.Bits() <= p.Bits():
			return all
		default:
			within = append(within, e)
		}
	}
	if len(within) == 0 {
		return append(all, p)
	}
	low, high := halves(p)
	return appendWithout(appendWithout(all, low, within), high, within)
}

// halves splits a prefix that is more than one address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	bytes := p.Addr().AsSlice()
	bytes[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(bytes) // as long as p's own
	return netip.PrefixFrom(p.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)
}
