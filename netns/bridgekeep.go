package netns

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// hostView is what the host has of links and of the routes to them.
type hostView struct {
	links  []netlink.Link
	routes []netlink.Route
}

func (k *hostKernel) view(h *netlink.Handle) (v hostView, err error) {
	if v.links, err = whole(h.LinkList); err != nil {
		return v, fmt.Errorf("list links: %w", err)
	}
	if v.routes, err = routesLike(h, &netlink.Route{Table: k.cfg.table()}, netlink.RT_FILTER_TABLE); err != nil {
		return v, fmt.Errorf("list routes: %w", err)
	}
	return v, nil
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

// link returns the host's end of w, nil where there is none.
func (v hostView) link(w wire) netlink.Link {
	i := slices.IndexFunc(v.links, func(l netlink.Link) bool { return l.Attrs().Name == w.outer })
	if i < 0 {
		return nil
	}
	return v.links[i]
}

func (v hostView) hasRoute(w wire, link int) bool {
	return slices.ContainsFunc(v.routes, func(r netlink.Route) bool {
		return r.Dst != nil && r.Dst.String() == hostNet(w).String() && r.LinkIndex == link
	})
}

// Inspect implements hostSide.
func (k *hostKernel) Inspect(w wire) (found []Difference, err error) {
	err = k.with(func(h *netlink.Handle) error {
		v, err := k.view(h)
		if err != nil {
			return err
		}
		link := v.link(w)
		if link == nil {
			found = []Difference{{Name: "link", Declared: w.outer + " on the host", Live: "absent"}}
			return nil
		}
		if link.Attrs().Flags&net.FlagUp == 0 {
			found = append(found, Difference{Name: "link", Declared: w.outer + " up", Live: w.outer + " down"})
		}
		if !v.hasRoute(w, link.Attrs().Index) {
			found = append(found, Difference{Name: "route", Declared: w.address.String() + " on the host", Live: "absent"})
		}
		changed, _, err := changedSysctls(w)
		found = append(found, changed...)
		return err
	})
	return found, err
}

// Rewire implements hostSide.
func (k *hostKernel) Rewire(wires []wire) (found []Difference, err error) {
	err = k.with(func(h *netlink.Handle) error {
		v, err := k.view(h)
		if err != nil {
			return err
		}
		for _, w := range wires {
			diffs, err := k.rewire(h, v, w)
			found = append(found, diffs...)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// rewire puts settings right before the route, without which nothing is taken. A
// link that is down stays so: somebody wants it.
func (k *hostKernel) rewire(h *netlink.Handle, v hostView, w wire) ([]Difference, error) {
	link := v.link(w)
	if link == nil {
		return []Difference{{Name: "link", Declared: w.outer + " on the host", Live: "absent"}}, nil
	}
	found, settings, err := changedSysctls(w)
	if err == nil {
		err = writeSysctls(settings)
	}
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 || v.hasRoute(w, link.Attrs().Index) {
		return found, err
	}
	found = append(found, Difference{Name: "route", Declared: w.address.String() + " on the host", Live: "absent"})
	r := k.wireRoute(link.Attrs().Index, w)
	if err := h.RouteAdd(&r); err != nil {
		return found, fmt.Errorf("add route to %s: %w", w.address, err)
	}
	return found, nil
}

// changedSysctls compares the settings of the host's end of w with the declared
// ones, and returns those that are to be written again. A host's rp_filter of 2
// (systemd sets it on new links) is as good as 1 here: the only way back that a
// packet without marks finds is the one that refuses.
func changedSysctls(w wire) (found []Difference, again []Sysctl, err error) {
	dirs := sysctlDirs{}
	defer dirs.close()
	v6, err := dirs.hasIPv6()
	if err != nil {
		return nil, nil, err
	}
	for _, s := range outerSysctls(w) {
		if s.IPv6 && !v6 {
			continue
		}
		live, err := dirs.read(s)
		if err != nil {
			return nil, nil, err
		}
		if live == s.Value || live == "2" && s.Key == "net.ipv4.conf."+w.outer+".rp_filter" {
			continue
		}
		found, again = append(found, Difference{Name: "sysctl " + s.Key, Declared: s.Value, Live: live}), append(again, s)
	}
	return found, again, nil
}
