package netns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route declares that the addresses of p are local: connections to them go to
// lo, from 127.0.0.1, where the rules lead them on. Without Src the kernel finds
// no source address on lo and takes 0.0.0.0.
func route(p netip.Prefix) netlink.Route {
	return netlink.Route{
		LinkIndex: loIndex,
		Dst:       &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		Src:       gateAddress.AsSlice(),
		Scope:     netlink.SCOPE_HOST,
		Table:     unix.RT_TABLE_LOCAL,
		Type:      unix.RTN_LOCAL,
		Protocol:  unix.RTPROT_STATIC,
		Family:    netlink.FAMILY_V4,
	}
}

// isDeclared reports whether r is the route of one of prefixes, in all that a
// route has.
func isDeclared(r netlink.Route, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return r.Equal(route(p)) })
}

// otherRoutes lists the routes of all tables that lead elsewhere than to the
// loopback addresses.
func otherRoutes(h *netlink.Handle) ([]netlink.Route, error) {
	var found []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// A filter by table with no table means: of all tables, not only main.
		all, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		found = append(found, slices.DeleteFunc(all, harmless)...)
	}
	return found, nil
}

// compareRoutes returns how live differs from one route for each of prefixes.
func compareRoutes(prefixes []netip.Prefix, live []netlink.Route) []Difference {
	var found []Difference
	for _, r := range live {
		if !isDeclared(r, prefixes) {
			found = append(found, Difference{Name: "route", Declared: "absent", Live: r.String()})
		}
	}
	for _, p := range prefixes {
		if !slices.ContainsFunc(live, route(p).Equal) {
			found = append(found, Difference{Name: "route", Declared: p.String(), Live: "absent"})
		}
	}
	return found
}

// harmless reports whether r refuses, or leads to lo and a loopback address.
func harmless(r netlink.Route) bool {
	switch r.Type {
	case unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE:
		return true
	}
	direct := r.LinkIndex == loIndex && r.Gw == nil && r.Via == nil && len(r.MultiPath) == 0
	return direct && r.Dst != nil && r.Dst.IP.IsLoopback()
}
