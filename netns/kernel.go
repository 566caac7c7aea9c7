package netns

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
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

// Secure implements inside.
func (k *kernel) Secure() error {
	use, err := k.tablesInUse()
	if err != nil {
		return err
	}
	if use.none() {
		return k.program(use, declaredTables)
	}
	found, err := k.checkRules(declaredTables)
	if err != nil || len(found) == 0 {
		return err
	}
	if err := k.program(use, declaredTables); err != nil {
		return err
	}
	if found, err = k.checkRules(declaredTables); err == nil && len(found) > 0 {
		err = sbxerr.New(sbxerr.Posture, "netns.rules", "somebody changed the rules: %v", found)
	}
	return err
}

// program puts the rules in force for both families at the same time. use is read before.
func (k *kernel) program(use tablesInUse, want func(family) []table) error {
	return k.eachFamily(use, func(f family, c command) error {
		return c.with(k.Do, func(ipt ruleTables) error { return program(ipt, want(f), use.none()) })
	})
}

func (k *kernel) tablesInUse() (use tablesInUse, err error) {
	err = k.Do(func() error { use, err = readTablesInUse(); return err })
	return use, err
}

// families lists those that the kernel has.
func families() ([]family, error) {
	v6, err := hasIPv6()
	if err != nil || !v6 {
		return []family{familyV4}, err
	}
	return []family{familyV4, familyV6}, nil
}

// checkRules compares the rules with those that are wanted: by their digest, if rules with
// the same one were as they are wanted before.
func (k *kernel) checkRules(want func(family) []table) ([]Difference, error) {
	before, use, err := k.digest(want)
	if err != nil || before.isChecked() {
		return nil, err
	}
	found, err := k.listRules(use, want)
	if err != nil || len(found) > 0 {
		return found, err
	}
	after, _, err := k.digest(want)
	if err == nil && after == before { // nobody changed them meanwhile
		before.setChecked()
	}
	return nil, err
}

func (k *kernel) digest(want func(family) []table) (d digest, use tablesInUse, err error) {
	err = k.Do(func() (err error) {
		if use, err = readTablesInUse(); err == nil {
			d, err = readDigest(use)
		}
		return err
	})
	return d.of(want), use, err
}

// listRules compares what the commands list.
func (k *kernel) listRules(use tablesInUse, want func(family) []table) ([]Difference, error) {
	used := map[family]backend{}
	var found []Difference
	var mu sync.Mutex
	err := k.eachFamily(use, func(f family, c command) error {
		return c.with(k.Do, func(ipt ruleTables) error {
			diffs, err := compareTables(ipt, f, want(f), use.shown(f, c.backend))
			mu.Lock()
			defer mu.Unlock()
			used[f], found = c.backend, append(found, diffs...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return append(use.foreign(used), found...), nil
}

// eachFamily calls fn for every family that the kernel has, at the same time, with the
// command that sees the tables that are in use.
func (k *kernel) eachFamily(use tablesInUse, fn func(family, command) error) error {
	known, err := families()
	if err != nil {
		return err
	}
	commands := map[family]command{}
	for _, f := range known {
		if commands[f], err = findCommand(f, use.backend(f)); err != nil {
			return err
		}
	}
	errs := make(chan error, len(commands))
	for f, c := range commands {
		go func() { errs <- fn(f, c) }()
	}
	var all []error
	for range commands {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
