package netns

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

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

// upTimeout is far more than the kernel needs.
const upTimeout = 5 * time.Second

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
		index, err := awaitUp(h, w.outer)
		if err != nil {
			return err
		}
		return k.connect(h, index, w)
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

// awaitUp returns the index of a link when the kernel has taken notice of its other end being
// up. Until then it drops packets, and the first connection would wait for a second.
func awaitUp(h *netlink.Handle, name string) (index int, err error) {
	for begun := time.Now(); time.Since(begun) < upTimeout; time.Sleep(200 * time.Microsecond) {
		link, err := h.LinkByName(name)
		if err != nil {
			return 0, fmt.Errorf("find link %q: %w", name, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return link.Attrs().Index, nil
		}
	}
	return 0, fmt.Errorf("link %q is not up after %s", name, upTimeout)
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
	if err := removeCountedV6(k.Handle); err != nil {
		return err
	}
	if err := k.Do(func() error { return writeSysctls(innerSysctls()) }); err != nil {
		return err
	}
	if err := raise(k.Handle, innerLink); err != nil {
		return err
	}
	routes, err := wireRoutes(link.Attrs().Index, w)
	if err != nil {
		return err
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Protocol == unix.RTPROT_KERNEL })
	_, err = addRoutes(k, routes)
	return err
}

func hostNet(w wire) *net.IPNet {
	return &net.IPNet{IP: w.address.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

// wireRoutes are the routes of a sandbox of the mode bridge: its address, which the kernel
// adds, the only one through its link, and that of IPv6 to the drop log.
func wireRoutes(link int, w wire) ([]netlink.Route, error) {
	known, err := families()
	drop := dropRoutes(slices.DeleteFunc(known, func(f family) bool { return f == familyV4 }))
	return append(drop, netlink.Route{
		LinkIndex: link, Dst: hostNet(w), Src: w.address.AsSlice(), Scope: netlink.SCOPE_HOST,
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Protocol: unix.RTPROT_KERNEL, Family: netlink.FAMILY_V4,
	}, netlink.Route{
		LinkIndex: link, Dst: everything(net.IPv4len), Gw: net.ParseIP(gatewayIP).To4(), Src: w.address.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_BOOT, Family: netlink.FAMILY_V4,
	}), err
}

// connect adds the route to the sandbox, without which none of its packets is taken.
func (k *hostKernel) connect(h *netlink.Handle, link int, w wire) error {
	r := k.wireRoute(link, w)
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

// declared is what the namespace of w has.
func (c BridgeConfig) declared(w wire) declaration {
	return declaration{
		links: []string{innerLink}, addresses: []string{hostNet(w).String()}, sysctls: innerSysctls(), own: w.address,
		routes: func(h *netlink.Handle) ([]netlink.Route, error) {
			link, err := h.LinkByName(innerLink)
			if errors.As(err, new(netlink.LinkNotFoundError)) {
				return nil, nil // it is a difference itself
			}
			if err != nil {
				return nil, err
			}
			return wireRoutes(link.Attrs().Index, w)
		},
		tables: func(f family) []table { return c.innerTables(f, w) },
	}
}

// outerState is the host's end of one link, as it is.
type outerState struct {
	wire
	index  int          // of the link; 0: absent
	up     bool         // one that is down stays so: somebody wants it
	routed bool         // to the sandbox
	found  []Difference // but for settings
}

// outerStates lists links and routes once for all wires.
func (k *hostKernel) outerStates(h *netlink.Handle, wires []wire) (states []outerState, err error) {
	links, err := whole(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	routes, err := routesLike(h, &netlink.Route{Table: k.cfg.table()}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, w := range wires {
		s := outerState{wire: w}
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == w.outer })
		if i < 0 {
			s.found = []Difference{{Name: "link", Declared: w.outer + " on the host", Live: "absent"}}
			states = append(states, s)
			continue
		}
		s.index, s.up = links[i].Attrs().Index, links[i].Attrs().Flags&net.FlagUp != 0
		s.routed = slices.ContainsFunc(routes, func(r netlink.Route) bool {
			return r.Dst != nil && r.Dst.String() == hostNet(w).String() && r.LinkIndex == s.index
		})
		if !s.up {
			s.found = append(s.found, Difference{Name: "link", Declared: w.outer + " up", Live: w.outer + " down"})
		}
		if !s.routed {
			s.found = append(s.found, Difference{Name: "route", Declared: w.address.String() + " on the host", Live: "absent"})
		}
		states = append(states, s)
	}
	return states, nil
}

// changedSettings takes a host's rp_filter of 2 (systemd sets it on new links) for as good as
// 1: the only way back that a packet without marks finds is the one that refuses.
func changedSettings(w wire) ([]Difference, error) {
	found, err := liveSysctls(outerSysctls(w))
	return slices.DeleteFunc(found, func(d Difference) bool {
		return d.Name == "sysctl net.ipv4.conf."+w.outer+".rp_filter" && d.Live == "2"
	}), err
}

// Inspect implements hostSide.
func (k *hostKernel) Inspect(w wire) (found []Difference, err error) {
	err = k.with(func(h *netlink.Handle) (err error) { found, err = k.compareWires(h, []wire{w}); return err })
	return found, err
}

func (k *hostKernel) compareWires(h *netlink.Handle, wires []wire) (found []Difference, err error) {
	states, err := k.outerStates(h, wires)
	for _, s := range states {
		found = append(found, s.found...)
		if s.index > 0 && err == nil {
			var settings []Difference
			settings, err = changedSettings(s.wire)
			found = append(found, settings...)
		}
	}
	return found, err
}

// mendWires puts the settings of a link right before its route, without which nothing is
// taken.
func (k *hostKernel) mendWires(h *netlink.Handle, wires []wire, adopted *wire) (mended []Difference, err error) {
	states, err := k.outerStates(h, wires)
	for _, s := range states {
		if err != nil || !s.up {
			continue
		}
		if !s.routed || adopted != nil && s.wire == *adopted {
			var settings []Difference
			settings, err = mendSettings(s.wire)
			mended = append(mended, settings...)
		}
		if err == nil && !s.routed {
			err = k.connect(h, s.index, s.wire)
		}
		mended = append(mended, s.found...)
	}
	return mended, err
}

func mendSettings(w wire) ([]Difference, error) {
	found, err := changedSettings(w)
	var declared []Sysctl
	for _, d := range found {
		declared = append(declared, Sysctl{Key: strings.TrimPrefix(d.Name, "sysctl "), Value: d.Declared})
	}
	if err == nil {
		err = writeSysctls(declared)
	}
	return found, err
}
