package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernel is a namespace of the kernel, with a netlink socket in it.
type kernel struct {
	*Namespace
	*netlink.Handle
}

func openInside(path string) (*kernel, error) {
	n, err := Open(path)
	if err != nil {
		return nil, err
	}
	k := &kernel{Namespace: n}
	err = n.Do(func() (err error) {
		k.Handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), n.Close())
	}
	return k, nil
}

// Close lets go of the namespace. It is a file that was only read from.
func (k *kernel) Close() {
	k.Handle.Close()
	_ = k.Namespace.Close()
}

// Routes implements inside.
func (k *kernel) Routes() ([]netlink.Route, error) { return otherRoutes(k.Handle) }

// AddRoute implements inside.
func (k *kernel) AddRoute(r netlink.Route) error { return k.RouteAdd(&r) }

// RemoveRoute implements inside.
func (k *kernel) RemoveRoute(r netlink.Route) error { return k.RouteDel(&r) }

// Listen implements inside.
func (k *kernel) Listen() (s *Sockets, err error) {
	err = k.Do(func() (err error) {
		if err = writeSysctls(gateSysctls); err != nil {
			return err
		}
		s, err = openSockets()
		return err
	})
	return s, err
}

// Program implements inside. The families are programmed at the same time.
//
// With commands for nft this takes 20 to 40 ms, in which nothing runs: when such
// a command ends, the kernel waits until nobody reads the rules of before (RCU).
func (k *kernel) Program() error { return k.program(declaredTables) }

func (k *kernel) program(want func(family) []table) error {
	restorers, _, err := k.restorers()
	if err != nil {
		return err
	}
	return eachFamily(restorers, func(f family, r restorer) error {
		return k.Do(func() error { return r.Restore(want(f)) })
	})
}

// restorers returns the commands for each family that the kernel has, and the
// tables that are there.
func (k *kernel) restorers() (map[family]restorer, tablesInUse, error) {
	var use tablesInUse
	if err := k.Do(func() (err error) { use, err = readTablesInUse(); return err }); err != nil {
		return nil, use, err
	}
	families, err := families()
	if err != nil {
		return nil, use, err
	}
	restorers := map[family]restorer{}
	for _, f := range families {
		if restorers[f], err = findRestorer(f, use.backend(f)); err != nil {
			return nil, use, err
		}
	}
	return restorers, use, nil
}

// families lists those that the kernel has.
func families() ([]family, error) {
	v6, err := hasIPv6()
	if err != nil || !v6 {
		return []family{familyV4}, err
	}
	return []family{familyV4, familyV6}, nil
}

// checkRules compares the rules with those that are wanted.
func (k *kernel) checkRules(want func(family) []table) ([]Difference, error) {
	restorers, use, err := k.restorers()
	if err != nil {
		return nil, err
	}
	used := map[family]backend{}
	live := map[family]*[]table{}
	for f, r := range restorers {
		used[f], live[f] = r.backend, new([]table)
	}
	err = eachFamily(restorers, func(f family, r restorer) error {
		return k.Do(func() (err error) { *live[f], err = r.Save(); return err })
	})
	if err != nil {
		return nil, err
	}
	found := use.foreign(used)
	for _, f := range []family{familyV4, familyV6} {
		if live[f] != nil {
			found = append(found, compareTables(f, want(f), *live[f])...)
		}
	}
	return found, nil
}

// eachFamily calls fn for every family at once and waits for all.
func eachFamily(restorers map[family]restorer, fn func(family, restorer) error) error {
	errs := make(chan error, len(restorers))
	for f, r := range restorers {
		go func() { errs <- fn(f, r) }()
	}
	var all []error
	for range restorers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
