package netns

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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

// onHost works in the namespace of the process.
func onHost(c BridgeConfig) *hostKernel { return &hostKernel{cfg: c, in: onThread} }

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

// compareTether also returns the routing rules and the refusing routes that are there.
func (k *hostKernel) compareTether(h *netlink.Handle) (found []Difference, rules []netlink.Rule, routes []netlink.Route, err error) {
	if rules, routes, err = k.tethers(h); err != nil {
		return nil, nil, nil, err
	}
	want, wantRoute, liveRules, liveRoutes := k.tetherRule(), k.tetherRoute(), []string{}, []string{}
	for _, r := range rules {
		liveRules = append(liveRules, tetherText(r))
	}
	for _, r := range routes {
		liveRoutes = append(liveRoutes, fmt.Sprintf("type %d to %v", r.Type, r.Dst))
	}
	found = slices.Concat(
		compareSets("routing rule", []string{tetherText(*want)}, liveRules),
		compareSets("route", []string{fmt.Sprintf("type %d to %v", wantRoute.Type, wantRoute.Dst)}, liveRoutes))
	return found, rules, routes, nil
}

// tetherText has the mask, which a rule's own text lacks.
func tetherText(r netlink.Rule) string {
	r.Family = netlink.FAMILY_V4
	return fmt.Sprintf("%s mask %#x", r, *cmp.Or(r.Mask, new(uint32)))
}

// mendTether makes all of it anew if one is not as it is declared, such as that of another
// subnet, which was configured before. Until the rule is there, nothing is routed.
func (k *hostKernel) mendTether(h *netlink.Handle) ([]Difference, error) {
	found, rules, routes, err := k.compareTether(h)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if err := untie(h, rules, routes); err != nil {
		return found, err
	}
	if err := k.checkOverlap(h); err != nil {
		return found, err
	}
	r := k.tetherRoute()
	if err := h.RouteAdd(&r); err != nil {
		return found, fmt.Errorf("add the route that refuses %s: %w", k.cfg.Subnet, err)
	}
	if err := h.RuleAdd(k.tetherRule()); err != nil {
		return found, fmt.Errorf("add the routing rule of sandboxes: %w", err)
	}
	return found, nil
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

// Used implements hostSide.
func (k *hostKernel) Used() (is bool, err error) {
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

// Mend implements hostSide: first what keeps packets without marks from being routed.
func (k *hostKernel) Mend(wires []wire, adopted *wire) (mended []Difference, err error) {
	err = k.with(func(h *netlink.Handle) error {
		tether, err := k.mendTether(h)
		if err != nil {
			return err
		}
		rules, err := k.mendRules()
		if err != nil {
			return err
		}
		links, err := k.mendWires(h, wires, adopted)
		mended = slices.Concat(tether, rules, links)
		return err
	})
	return mended, err
}

// examine compares what the links need that are there, if there are any.
func (k *hostKernel) examine() ([]Difference, error) {
	names, err := k.Links()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var tether, links []Difference
	err = k.with(func(h *netlink.Handle) (err error) {
		if tether, _, _, err = k.compareTether(h); err != nil {
			return err
		}
		links, err = k.compareWires(h, k.cfg.wiresOf(names))
		return err
	})
	if err != nil {
		return nil, err
	}
	rules, err := k.compareRules(func(ruleTables, hook) error { return nil })
	return slices.Concat(tether, rules, links), err
}

// mendRules runs no command while nobody changes any rule of the host: it reads their
// digest, in less than a millisecond.
func (k *hostKernel) mendRules() ([]Difference, error) {
	before, err := k.digest()
	if err != nil || before == k.whole {
		return nil, err
	}
	found, err := k.compareRules(mend)
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

// compareRules calls fix for each table of which the rules are not as declared.
func (k *hostKernel) compareRules(fix func(ruleTables, hook) error) (found []Difference, err error) {
	err = k.eachFamily(func(f family, _ command, ipt ruleTables) error {
		for _, h := range k.cfg.hostTables(f) {
			diffs, err := compareHook(ipt, f, h)
			if err == nil && len(diffs) > 0 {
				found, err = append(found, diffs...), fix(ipt, h)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// Clean implements hostSide.
func (k *hostKernel) Clean() error {
	err := k.eachFamily(func(f family, c command, ipt ruleTables) error {
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
	if err != nil {
		return err
	}
	return k.with(func(h *netlink.Handle) error {
		rules, routes, err := k.tethers(h)
		return errors.Join(err, untie(h, rules, routes))
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

// listAttempts is how often a list is asked for that changes while it is read. On
// a host, others add and remove links all the time.
const listAttempts = 20

// whole asks again for a list that was not read as a whole.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range listAttempts {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

func routesLike(h *netlink.Handle, like *netlink.Route, fields uint64) ([]netlink.Route, error) {
	return whole(func() ([]netlink.Route, error) { return h.RouteListFiltered(netlink.FAMILY_V4, like, fields) })
}
