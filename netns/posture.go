package netns

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// Difference is something about a live namespace that was not declared.
type Difference struct {
	Name     string // "link", "address", "route", "owner" or "sysctl <key>"
	Declared string
	Live     string
}

// String renders d for an error message.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %q, declared %q", d.Name, d.Live, d.Declared)
}

// Check reads the namespace at path from inside and returns every difference
// from what mode none declares: only lo, up, with the loopback addresses and
// no other route, the sysctls, and the host's user namespace as the owner.
// What cannot be read is an error: nobody can say that it is right.
func Check(path string) ([]Difference, error) {
	const op = "netns.check"
	n, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	owner, err := checkOwner(n.file)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	var inside []Difference
	err = n.Do(func() (err error) {
		inside, err = inspect()
		return err
	})
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	return append(owner, inside...), nil
}

// checkOwner compares the user namespace that owns f with the caller's.
// Whoever has CAP_NET_ADMIN in the owner can configure the network namespace.
func checkOwner(f *os.File) ([]Difference, error) {
	fd, err := unix.IoctlRetInt(int(f.Fd()), nsGetUserNS)
	if err != nil {
		return nil, fmt.Errorf("get owner of network namespace %q: %w", f.Name(), err)
	}
	owner := os.NewFile(uintptr(fd), "owner")
	defer owner.Close()
	live, err := owner.Stat()
	if err != nil {
		return nil, err
	}
	own, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		return nil, err
	}
	if os.SameFile(live, own) {
		return nil, nil
	}
	return []Difference{{Name: "owner", Declared: "the daemon's user namespace", Live: "another user namespace"}}, nil
}

// inspect reads the calling thread's namespace.
func inspect() ([]Difference, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer h.Close()
	var found []Difference
	var errs []error
	for _, look := range []func(*netlink.Handle) ([]Difference, error){links, addresses, routes} {
		diffs, err := look(h)
		found, errs = append(found, diffs...), append(errs, err)
	}
	diffs, err := liveSysctls()
	return append(found, diffs...), errors.Join(append(errs, err)...)
}

func links(h *netlink.Handle) ([]Difference, error) {
	all, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var found []Difference
	sawLo := false
	for _, link := range all {
		a := link.Attrs()
		isLo := a.Index == loIndex && a.Flags&net.FlagLoopback != 0
		switch {
		case !isLo:
			found = append(found, Difference{Name: "link", Declared: "absent", Live: a.Name})
		case a.Flags&net.FlagUp == 0:
			found = append(found, Difference{Name: "link", Declared: "lo up", Live: "lo down"})
		}
		sawLo = sawLo || isLo
	}
	if !sawLo {
		found = append(found, Difference{Name: "link", Declared: "lo", Live: "absent"})
	}
	return found, nil
}

func addresses(h *netlink.Handle) ([]Difference, error) {
	all, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var found []Difference
	for _, a := range all {
		if !slices.Contains([]string{"127.0.0.1/8", "::1/128"}, a.IPNet.String()) {
			found = append(found, Difference{Name: "address", Declared: "absent", Live: a.IPNet.String()})
		}
	}
	return found, nil
}

func routes(h *netlink.Handle) ([]Difference, error) {
	var found []Difference
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// A filter by table with no table means: of all tables, not only main.
		all, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range all {
			if !harmless(r) {
				found = append(found, Difference{Name: "route", Declared: "absent", Live: r.String()})
			}
		}
	}
	return found, nil
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

func liveSysctls() ([]Difference, error) {
	v6, err := hasIPv6()
	if err != nil {
		return nil, err
	}
	var found []Difference
	for _, s := range sysctls {
		if s.IPv6 && !v6 {
			continue
		}
		live, err := s.read()
		if err != nil {
			return nil, err
		}
		if live != s.Value {
			found = append(found, Difference{Name: "sysctl " + s.Key, Declared: s.Value, Live: live})
		}
	}
	return found, nil
}
