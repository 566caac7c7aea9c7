package netns

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// outerSysctls are the settings of the host's end of w. They go with it.
func outerSysctls(w wire) []Sysctl {
	v4, v6 := "net.ipv4.conf."+w.outer+".", "net.ipv6.conf."+w.outer+"."
	return []Sysctl{
		{Key: v6 + "disable_ipv6", Value: "1", Why: "the link has no IPv6", IPv6: true},
		{Key: v4 + "rp_filter", Value: "1", Why: "what has no route back to it is not taken: another's address, or without marks"},
		{Key: v4 + "src_valid_mark", Value: "1", Why: "the route back is looked for with the marks of the packet"},
		{Key: v4 + "accept_redirects", Value: "0", Why: "no packet changes a route"},
		{Key: v4 + "send_redirects", Value: "0", Why: "there is no other way"},
		{Key: v4 + "route_localnet", Value: "0", Why: "127.0.0.0/8 is not reached through it"},
		{Key: v4 + "proxy_arp", Value: "0", Why: "nothing is answered for"},
		{Key: v4 + "forwarding", Value: "1", Why: "what comes from it may be forwarded"},
	}
}

// innerSysctls are the settings of the namespace of w, in the place of those of
// the other modes where they have the same key.
func innerSysctls() []Sysctl {
	own := []Sysctl{
		{Key: "net.ipv4.ping_group_range", Value: "0 2147483647", Why: "ping works: this mode has ICMP, and its sockets send nothing but questions"},
		{Key: "net.ipv4.conf." + innerLink + ".rp_filter", Value: "1", Why: "packets with a source that is not routed back are dropped"},
		{Key: "net.ipv4.conf." + innerLink + ".accept_redirects", Value: "0", Why: "no packet changes a route"},
		{Key: "net.ipv4.conf." + innerLink + ".route_localnet", Value: "0", Why: "127.0.0.0/8 never leaves lo"},
		{Key: "net.ipv6.conf." + innerLink + ".disable_ipv6", Value: "1", Why: "the link has no IPv6", IPv6: true},
	}
	others := slices.DeleteFunc(Sysctls(), func(s Sysctl) bool {
		return slices.ContainsFunc(own, func(o Sysctl) bool { return o.Key == s.Key })
	})
	return append(others, own...)
}

// Plug implements hostSide.
func (k *hostKernel) Plug(path string, w wire, mtu int) error {
	n, err := openInside(path)
	if err != nil {
		return err
	}
	defer n.Close()
	return k.with(func(h *netlink.Handle) error {
		link := &netlink.Veth{
			LinkAttrs:        netlink.LinkAttrs{Name: w.outer, MTU: mtu, HardwareAddr: linkMAC},
			PeerName:         innerLink,
			PeerHardwareAddr: linkMAC,
			PeerNamespace:    netlink.NsFd(n.file.Fd()),
		}
		if err := h.LinkAdd(link); err != nil {
			return fmt.Errorf("make link %q: %w", w.outer, err)
		}
		if err := writeSysctls(outerSysctls(w)); err != nil {
			return err
		}
		if err := raise(h, w.outer); err != nil {
			return err
		}
		if err := n.configure(w); err != nil {
			return err
		}
		return k.connect(h, w)
	})
}

// raise sets a link up that asks nobody for addresses.
func raise(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetARPOff(link)
	}
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set link %q up: %w", name, err)
	}
	return nil
}

// configure gives the sandbox's end its address and its only route, and IPv6, which has
// none, the one to lo where it is logged and refused.
func (k *kernel) configure(w wire) error {
	link, err := k.LinkByName(innerLink)
	if err != nil {
		return fmt.Errorf("find link %q: %w", innerLink, err)
	}
	if err := k.AddrAdd(link, &netlink.Addr{IPNet: hostNet(w)}); err != nil {
		return fmt.Errorf("add address %s: %w", w.address, err)
	}
	if err := k.Do(func() error { return writeSysctls(innerSysctls()) }); err != nil {
		return err
	}
	if err := raise(k.Handle, innerLink); err != nil {
		return err
	}
	lost, err := wireDropRoutes()
	if err != nil {
		return err
	}
	if _, err := addRoutes(k, lost); err != nil {
		return err
	}
	r := defaultRoute(link.Attrs().Index, w)
	if err := k.RouteAdd(&r); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

func hostNet(w wire) *net.IPNet {
	return &net.IPNet{IP: w.address.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

// defaultRoute is the only route of a sandbox that leads through its link.
func defaultRoute(link int, w wire) netlink.Route {
	return netlink.Route{
		LinkIndex: link, Gw: net.ParseIP(gatewayIP).To4(), Src: w.address.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Family: netlink.FAMILY_V4,
	}
}

// wireDropRoutes are the routes of what has no way through the link: IPv6.
func wireDropRoutes() ([]netlink.Route, error) {
	known, err := families()
	return dropRoutes(slices.DeleteFunc(known, func(f family) bool { return f == familyV4 })), err
}

// connect adds the route to the sandbox, without which none of its packets is
// taken.
func (k *hostKernel) connect(h *netlink.Handle, w wire) error {
	link, err := h.LinkByName(w.outer)
	if err != nil {
		return fmt.Errorf("find link %q: %w", w.outer, err)
	}
	r := k.wireRoute(link.Attrs().Index, w)
	if err := h.RouteAdd(&r); err != nil {
		return fmt.Errorf("add route to %s: %w", w.address, err)
	}
	return nil
}

// wireRoute is the route to a sandbox, which only marked packets find.
func (k *hostKernel) wireRoute(link int, w wire) netlink.Route {
	return netlink.Route{
		LinkIndex: link, Dst: hostNet(w), Scope: netlink.SCOPE_LINK, Table: k.cfg.table(), Protocol: tetherProtocol, Family: netlink.FAMILY_V4,
	}
}

// Unplug implements hostSide. The sandbox's end and all routes go with it.
func (k *hostKernel) Unplug(outer string) error {
	return k.with(func(h *netlink.Handle) error {
		link, err := h.LinkByName(outer)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err == nil {
			err = h.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("remove link %q: %w", outer, err)
		}
		return nil
	})
}

// deny puts the rules of w in force in its namespace, which has no link yet.
func deny(path string, c BridgeConfig, w wire) error {
	n, err := openInside(path)
	if err != nil {
		return err
	}
	defer n.Close()
	return n.program(tablesInUse{}, func(f family) []table { return c.innerTables(f, w) })
}

// checkInner compares the namespace of w with what was declared.
func checkInner(path string, c BridgeConfig, w wire) ([]Difference, error) {
	k, err := openInside(path)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	found, err := checkOwner(k.file)
	if err != nil {
		return nil, err
	}
	err = k.Do(func() error {
		diffs, err := inspectWire(k.Handle, w)
		found = append(found, diffs...)
		return err
	})
	if err != nil {
		return nil, err
	}
	diffs, err := k.checkRules(func(f family) []table { return c.innerTables(f, w) }, w.address)
	return append(found, diffs...), err
}

// inspectWire reads the calling thread's namespace, of which h is a socket.
func inspectWire(h *netlink.Handle, w wire) ([]Difference, error) {
	linkDiffs, linkErr := links(h, innerLink)
	addressDiffs, addressErr := addresses(h, hostNet(w).String())
	sysctlDiffs, sysctlErr := liveSysctls(innerSysctls())
	live, routeErr := otherRoutes(h)
	lost, dropErr := wireDropRoutes()
	found := slices.Concat(linkDiffs, addressDiffs, sysctlDiffs)
	if linkErr == nil && len(linkDiffs) == 0 {
		for _, r := range without(lost, live) {
			found = append(found, Difference{Name: "route", Declared: r.Dst.String(), Live: "absent"})
		}
		found = append(found, compareWireRoutes(h, w, without(live, lost))...)
	}
	return found, errors.Join(linkErr, addressErr, sysctlErr, routeErr, dropErr)
}

// compareWireRoutes expects the default route, and the kernel's own for the
// sandbox's address.
func compareWireRoutes(h *netlink.Handle, w wire, live []netlink.Route) []Difference {
	var found []Difference
	link, err := h.LinkByName(innerLink)
	if err != nil {
		return []Difference{{Name: "link", Declared: innerLink, Live: "absent"}}
	}
	want := defaultRoute(link.Attrs().Index, w)
	seen := false
	for _, r := range live {
		toAll := r.Dst == nil || r.Dst.IP.IsUnspecified() && isZero(r.Dst.Mask)
		own := r.Type == unix.RTN_LOCAL && r.LinkIndex == want.LinkIndex && r.Dst != nil && r.Dst.String() == hostNet(w).String()
		switch {
		case own:
		case toAll && r.Type == unix.RTN_UNICAST && r.Table == want.Table && r.LinkIndex == want.LinkIndex && r.Gw.Equal(want.Gw) && len(r.MultiPath) == 0:
			seen = true
		default:
			found = append(found, Difference{Name: "route", Declared: "absent", Live: r.String()})
		}
	}
	if !seen {
		found = append(found, Difference{Name: "route", Declared: "default through " + innerLink, Live: "absent"})
	}
	return found
}

func isZero(m net.IPMask) bool {
	ones, _ := m.Size()
	return ones == 0
}
