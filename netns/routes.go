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

// dropRoutes are the routes of all that no other route leads: to lo, where the rules
// log and refuse it. Without them the kernel finds no way, and nobody hears of it.
// Without the rules lo drops it, as these addresses are not local.
func dropRoutes(families []family) []netlink.Route {
	var routes []netlink.Route
	for _, f := range families {
		routes = append(routes, dropRoute[f])
	}
	return routes
}

var dropRoute = map[family]netlink.Route{
	familyV4: {
		LinkIndex: loIndex, Dst: everything(net.IPv4len), Src: gateAddress.AsSlice(), Scope: netlink.SCOPE_LINK,
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_STATIC, Family: netlink.FAMILY_V4,
	},
	familyV6: {
		LinkIndex: loIndex, Dst: everything(net.IPv6len), Src: net.IPv6loopback, Priority: 1024,
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_STATIC, Family: netlink.FAMILY_V6,
	},
}

// everything is the prefix of all addresses of so many bytes.
func everything(length int) *net.IPNet {
	return &net.IPNet{IP: make(net.IP, length), Mask: make(net.IPMask, length)}
}

// otherRoutes lists the routes of all tables that lead elsewhere than to the
// addresses of lo.
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

// compareRoutes returns how live differs from what is declared.
func compareRoutes(declared, live []netlink.Route) []Difference {
	var found []Difference
	for _, r := range without(live, declared) {
		found = append(found, Difference{Name: "route", Declared: "absent", Live: r.String()})
	}
	for _, r := range without(declared, live) {
		found = append(found, Difference{Name: "route", Declared: r.Dst.String(), Live: "absent"})
	}
	return found
}

// without returns those of routes that are not in others, in all that a route has.
func without(routes, others []netlink.Route) []netlink.Route {
	return slices.DeleteFunc(slices.Clone(routes), func(r netlink.Route) bool { return slices.ContainsFunc(others, r.Equal) })
}

// harmless reports whether r refuses, or leads to lo and an address of lo.
func harmless(r netlink.Route) bool {
	switch r.Type {
	case unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE:
		return true
	}
	direct := r.LinkIndex == loIndex && r.Gw == nil && r.Via == nil && len(r.MultiPath) == 0
	return direct && r.Dst != nil && (r.Dst.IP.IsLoopback() || r.Type == unix.RTN_LOCAL && r.Dst.String() == countedV6.IPNet.String())
}
