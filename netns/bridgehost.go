package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	// tetherPriority is before the rule for the table main (32766).
	tetherPriority = 21000
	// tetherProtocol marks routes of ours (rtnetlink(7): above RTPROT_STATIC it is
	// for whoever wants it).
	tetherProtocol = 202
)

// worldIP is an address of the world: the link on the way to it is the host's
// uplink. It is not sent anything.
var worldIP = net.IPv4(1, 1, 1, 1)

// hostKernel is the namespace that sandboxes leave through: that of the process.
type hostKernel struct {
	cfg   BridgeConfig
	in    func(func() error) error // runs a function there
	whole digest                   // of all rules when ours were last compared, and were as declared
}

// with runs fn there, with a netlink socket.
func (k *hostKernel) with(fn func(*netlink.Handle) error) error {
	return k.in(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		defer h.Close()
		return fn(h)
	})
}

// Uplink implements hostSide.
func (k *hostKernel) Uplink() (mtu int, err error) {
	err = k.with(func(h *netlink.Handle) error {
		routes, err := h.RouteGet(worldIP)
		if err == nil && len(routes) == 0 {
			err = unix.ENETUNREACH
		}
		if err != nil {
			return sbxerr.WithRemedy(sbxerr.NetworkMode, "netns.bridge",
				fmt.Errorf("use network mode %q: the host has no way out itself: %w", ModeBridge, err), "give the host a default route")
		}
		link, err := h.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			return fmt.Errorf("look at the host's uplink: %w", err)
		}
		name := link.Attrs().Name
		mtu = link.Attrs().MTU
		on, err := os.ReadFile(filepath.Join(sysctlRoot, "net/ipv4/conf", name, "forwarding"))
		if err == nil && strings.TrimSpace(string(on)) != "1" {
			err = errForward(name)
		}
		return err
	})
	return mtu, err
}

// tetherRule leads packets with both marks to the routes of sandboxes.
func (k *hostKernel) tetherRule() *netlink.Rule {
	r, mask := netlink.NewRule(), uint32(marksOfWorld)
	r.Family, r.Priority, r.Table, r.Mark, r.Mask = netlink.FAMILY_V4, tetherPriority, k.cfg.table(), marksOfWorld, &mask
	return r
}

// tetherRoute lets all others find no way to a sandbox, and by that, none back to
// the source of what a sandbox sends. Its metric is the number of our table: it is
// found by that also when the subnet is no longer known.
func (k *hostKernel) tetherRoute() netlink.Route {
	return netlink.Route{
		Dst: ipNet(k.cfg.Subnet), Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNREACHABLE, Protocol: tetherProtocol,
		Priority: k.cfg.table(), Family: netlink.FAMILY_V4,
	}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Tether implements hostSide.
func (k *hostKernel) Tether() (found []Difference, err error) {
	err = k.with(func(h *netlink.Handle) error {
		rules, routes, err := k.tethers(h)
		if err != nil {
			return err
		}
		if found, err = k.untieOthers(h, rules, routes); err != nil {
			return err
		}
		if len(found) > 0 {
			rules, routes = nil, nil
		}
		if len(routes) == 0 {
			if err := k.checkOverlap(h); err != nil {
				return err
			}
			found = append(found, Difference{Name: "route", Declared: "unreachable " + k.cfg.Subnet.String(), Live: "absent"})
			r := k.tetherRoute()
			if err := h.RouteAdd(&r); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("add the route that refuses %s: %w", k.cfg.Subnet, err)
			}
		}
		if len(rules) == 0 {
			found = append(found, Difference{Name: "routing rule", Declared: k.tetherRule().String(), Live: "absent"})
			if err := h.RuleAdd(k.tetherRule()); err != nil {
				return fmt.Errorf("add the routing rule of sandboxes: %w", err)
			}
		}
		return nil
	})
	return found, err
}

// untieOthers removes all if one of them is not as it is declared, such as that of
// another subnet, which was configured before.
func (k *hostKernel) untieOthers(h *netlink.Handle, rules []netlink.Rule, routes []netlink.Route) (found []Difference, err error) {
	want := k.tetherRule()
	for _, r := range rules {
		if r.Priority != want.Priority || r.Mark != want.Mark || r.Mask == nil || *r.Mask != *want.Mask {
			found = append(found, Difference{Name: "routing rule", Declared: want.String(), Live: r.String()})
		}
	}
	for _, r := range routes {
		if r.Dst == nil || r.Dst.String() != k.cfg.Subnet.String() || r.Type != unix.RTN_UNREACHABLE {
			found = append(found, Difference{Name: "route", Declared: "unreachable " + k.cfg.Subnet.String(), Live: r.String()})
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found, untie(h, rules, routes)
}

func untie(h *netlink.Handle, rules []netlink.Rule, routes []netlink.Route) error {
	var errs []error
	for _, r := range rules {
		r.Family = netlink.FAMILY_V4
		errs = append(errs, h.RuleDel(&r))
	}
	for _, r := range routes {
		errs = append(errs, h.RouteDel(&r))
	}
	return errors.Join(errs...)
}

// checkOverlap refuses a subnet that leads somewhere already.
func (k *hostKernel) checkOverlap(h *netlink.Handle) error {
	routes, err := routesLike(h, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		if ok && bits > 0 && netip.PrefixFrom(addr, bits).Overlaps(k.cfg.Subnet) {
			return sbxerr.WithRemedy(sbxerr.NetworkMode, "netns.bridge",
				fmt.Errorf("use %s for sandboxes: the host has a route to %s", k.cfg.Subnet, r.Dst), bridgeRemedy)
		}
	}
	return nil
}

// Tethered implements hostSide.
func (k *hostKernel) Tethered() (is bool, err error) {
	err = k.with(func(h *netlink.Handle) error {
		rules, routes, err := k.tethers(h)
		is = len(rules) > 0 || len(routes) > 0
		return err
	})
	return is, err
}

// tethers lists the routing rules and the refusing routes of the instance.
func (k *hostKernel) tethers(h *netlink.Handle) ([]netlink.Rule, []netlink.Route, error) {
	rules, err := whole(func() ([]netlink.Rule, error) {
		return h.RuleListFiltered(netlink.FAMILY_V4, &netlink.Rule{Table: k.cfg.table()}, netlink.RT_FILTER_TABLE)
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // a kernel without them has none
		return nil, nil, fmt.Errorf("list routing rules: %w", err)
	}
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: tetherProtocol, Priority: k.cfg.table()}
	routes, err := routesLike(h, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_PRIORITY)
	if err != nil {
		return nil, nil, fmt.Errorf("list routes: %w", err)
	}
	return rules, routes, nil
}

// Untether implements hostSide.
func (k *hostKernel) Untether() error {
	return k.with(func(h *netlink.Handle) error {
		rules, routes, err := k.tethers(h)
		return errors.Join(err, untie(h, rules, routes))
	})
}

// Mend implements hostSide. While nobody changes any rule of the host it reads their digest
// and runs no command.
func (k *hostKernel) Mend() ([]Difference, error) {
	before, err := k.digest()
	if err != nil || before == k.whole {
		return nil, err
	}
	found, err := k.mendRules()
	if err != nil || len(found) > 0 {
		return found, err
	}
	after, err := k.digest()
	if err == nil && after == before {
		k.whole = before
	}
	return nil, err
}

func (k *hostKernel) digest() (d digest, err error) {
	err = k.in(func() error {
		use, err := readTablesInUse()
		if err == nil {
			d, err = readDigest(use, netip.Addr{})
		}
		return err
	})
	return d, err
}

func (k *hostKernel) mendRules() (found []Difference, err error) {
	err = k.eachFamily(func(f family, _ command, ipt ruleTables) error {
		for _, h := range k.cfg.hostTables(f) {
			diffs, err := compareHook(ipt, f, h)
			if err != nil {
				return err
			}
			if len(diffs) == 0 {
				continue
			}
			found = append(found, diffs...)
			if err := mend(ipt, h); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// Clean implements hostSide.
func (k *hostKernel) Clean() error {
	return k.eachFamily(func(f family, c command, ipt ruleTables) error {
		use, err := readTablesInUse()
		if err != nil {
			return err
		}
		var errs []error
		for _, table := range use.shown(f, c.backend) {
			errs = append(errs, clean(ipt, table, k.cfg.chain("")))
		}
		return errors.Join(errs...)
	})
}

// eachFamily calls fn in the host's namespace, with the host's own commands: its rules are
// those of its choice.
func (k *hostKernel) eachFamily(fn func(family, command, ruleTables) error) error {
	known, err := families()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range known {
		c, err := findCommand(f, backendAny)
		if err == nil {
			err = c.with(k.in, func(ipt ruleTables) error { return fn(f, c, ipt) })
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Bytes implements hostSide. The host's end receives what the sandbox sends.
func (k *hostKernel) Bytes(outer string) (sent, received uint64, err error) {
	err = k.with(func(h *netlink.Handle) error {
		link, err := h.LinkByName(outer)
		if err != nil {
			return fmt.Errorf("find link %q: %w", outer, err)
		}
		s := link.Attrs().Statistics
		sent, received = s.RxBytes, s.TxBytes
		return nil
	})
	return sent, received, err
}

// Links implements hostSide.
func (k *hostKernel) Links() (names []string, err error) {
	err = k.with(func(h *netlink.Handle) error {
		all, err := whole(h.LinkList)
		for _, l := range all {
			if strings.HasPrefix(l.Attrs().Name, k.cfg.linkPrefix()) {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	return names, err
}
