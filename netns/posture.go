package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Difference is something about a live namespace that was not declared.
type Difference struct {
	// Name is "link", "address", "route", "owner", "sysctl KEY", "table", or
	// what it is of the rules: "iptables policy of filter OUTPUT".
	Name     string
	Declared string
	Live     string
}

// String renders d for an error message.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %q, declared %q", d.Name, d.Live, d.Declared)
}

// Check reads the namespace at path from inside and returns every difference
// from what was declared: only lo, up, with the loopback addresses, the sysctls,
// and the host's user namespace as the owner. Without r, as in mode none, there
// is no other route; with r there is one for each of its prefixes, and for what
// goes nowhere, and the rules are the declared ones and no others. What cannot be read is an error:
// nobody can say that it is right.
func Check(path string, r *Redirect) ([]Difference, error) {
	const op = "netns.check"
	d := declaration{sysctls: sysctls, routes: noRoutes}
	if r != nil {
		routes, err := r.plan(op)
		if err != nil {
			return nil, err
		}
		d.routes, d.tables = func(*netlink.Handle) ([]netlink.Route, error) { return routes, nil }, declaredTables
	}
	found, err := check(path, d)
	return found, wrapInner(op, err)
}

// declaration is what a namespace has beside lo, the loopback addresses and the routes to
// them.
type declaration struct {
	links, addresses []string
	routes           func(*netlink.Handle) ([]netlink.Route, error)
	sysctls          []Sysctl
	tables           func(family) []table // nil: nobody looks at rules
	own              netip.Addr           // in the rules, of this namespace alone
}

func noRoutes(*netlink.Handle) ([]netlink.Route, error) { return nil, nil }

// check compares the namespace at path with d.
func check(path string, d declaration) ([]Difference, error) {
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
		diffs, err := inspect(k.Handle, d)
		found = append(found, diffs...)
		return err
	})
	if err != nil || d.tables == nil {
		return found, err
	}
	diffs, err := k.checkRules(d.tables, d.own)
	return append(found, diffs...), err
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

// inspect reads the calling thread's namespace, of which h is a socket.
func inspect(h *netlink.Handle, d declaration) ([]Difference, error) {
	linkDiffs, linkErr := links(h, d.links...)
	addressDiffs, addressErr := addresses(h, d.addresses...)
	declared, declaredErr := d.routes(h)
	live, routeErr := otherRoutes(h)
	sysctlDiffs, sysctlErr := liveSysctls(d.sysctls)
	return slices.Concat(linkDiffs, addressDiffs, compareRoutes(declared, live), sysctlDiffs),
		errors.Join(linkErr, addressErr, declaredErr, routeErr, sysctlErr)
}

// compareSets returns the elements of one list that the other lacks.
func compareSets(name string, declared, live []string) (found []Difference) {
	for _, l := range live {
		if !slices.Contains(declared, l) {
			found = append(found, Difference{Name: name, Declared: "absent", Live: l})
		}
	}
	for _, d := range declared {
		if !slices.Contains(live, d) {
			found = append(found, Difference{Name: name, Declared: d, Live: "absent"})
		}
	}
	return found
}

// links expects lo and the veths that are named, all of them up.
func links(h *netlink.Handle, veths ...string) ([]Difference, error) {
	all, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	declared, live := []string{"loopback lo up"}, []string{}
	for _, name := range veths {
		declared = append(declared, "veth "+name+" up")
	}
	for _, link := range all {
		a, kind, state := link.Attrs(), link.Type(), "down"
		if a.Index == loIndex && a.Flags&net.FlagLoopback != 0 {
			kind = "loopback"
		}
		if a.Flags&net.FlagUp != 0 {
			state = "up"
		}
		live = append(live, kind+" "+a.Name+" "+state)
	}
	return compareSets("link", declared, live), nil
}

// addresses expects those of lo, if there are any, and those that are given.
func addresses(h *netlink.Handle, others ...string) ([]Difference, error) {
	all, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var live []string
	for _, a := range all {
		text := a.IPNet.String()
		if a.LinkIndex != loIndex || !slices.Contains(loAddresses, text) {
			live = append(live, text)
		}
	}
	return compareSets("address", others, live), nil
}

func liveSysctls(want []Sysctl) ([]Difference, error) {
	dirs := sysctlDirs{}
	defer dirs.close()
	v6, err := dirs.hasIPv6()
	if err != nil {
		return nil, err
	}
	var found []Difference
	for _, s := range want {
		if s.IPv6 && !v6 {
			continue
		}
		live, err := dirs.read(s)
		absent := errors.Is(err, fs.ErrNotExist)
		if absent && s.Optional {
			continue
		}
		if absent { // as net.core is where the namespace has another owner
			live, err = "absent", nil
		}
		if err != nil {
			return nil, err
		}
		if live != s.Value {
			found = append(found, Difference{Name: "sysctl " + s.Key, Declared: s.Value, Live: live})
		}
	}
	return found, nil
}
