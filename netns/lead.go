package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// inside is what leading needs of a namespace; tests bring one in memory.
type inside interface {
	Routes() ([]netlink.Route, error) // those that lead elsewhere than to loopback addresses
	AddRoute(netlink.Route) error
	RemoveRoute(netlink.Route) error
	Program() error // puts the declared rules in force for every family
	Listen() (*Sockets, error)
}

// Lead makes the namespace at path one with a gate: connections to the
// prefixes of g, and DNS, reach the returned sockets, and nothing else passes.
// The caller closes the sockets.
//
// In a namespace that has a gate already, whatever state it is in, rules and
// routes are put right and the sockets opened anew; those of before must be
// closed. On failure nothing leads anywhere. Rules that cannot be programmed
// have code sbxerr.NetRule, prefixes that cannot be led sbxerr.NetPolicy.
func Lead(path string, g Gate) (*Sockets, error) {
	const op = "netns.lead"
	declared, err := g.plan(op)
	if err != nil {
		return nil, err
	}
	n, err := openInside(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer n.Close()
	s, err := lead(n, declared)
	return s, wrapInner(op, err)
}

// lead closes first, denies second, allows third and connects last, so that
// wherever it fails nothing leads anywhere: without a route there is no way to
// the sockets.
func lead(n inside, declared []netlink.Route) (_ *Sockets, err error) {
	before, err := n.Routes()
	if err != nil {
		return nil, err
	}
	if err := removeRoutes(n, before); err != nil {
		return nil, err
	}
	if err := n.Program(); err != nil {
		return nil, err
	}
	s, err := n.Listen()
	if err != nil {
		return nil, err
	}
	added, err := addRoutes(n, declared)
	if err != nil {
		return nil, errors.Join(err, s.Close(), removeRoutes(n, added))
	}
	return s, nil
}

// Relead changes the prefixes of a namespace with a gate. Those that go lead
// nowhere before one that comes leads anywhere, and while one of them cannot be
// removed none is added. After a failure Relead may be called again.
// Connections that are established are the gateway's to cut.
func Relead(path string, g Gate) error {
	const op = "netns.relead"
	declared, err := g.plan(op)
	if err != nil {
		return err
	}
	n, err := openInside(path)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer n.Close()
	return wrapInner(op, relead(n, declared))
}

func relead(n inside, declared []netlink.Route) error {
	live, err := n.Routes()
	if err != nil {
		return err
	}
	if err := removeRoutes(n, without(live, declared)); err != nil {
		return err
	}
	_, err = addRoutes(n, without(declared, live))
	return err
}

// removeRoutes goes on after errors.
func removeRoutes(n inside, routes []netlink.Route) error {
	var errs []error
	for _, r := range routes {
		if err := n.RemoveRoute(r); err != nil {
			errs = append(errs, fmt.Errorf("remove route to %v: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// addRoutes returns the routes that it added, also when it fails.
func addRoutes(n inside, routes []netlink.Route) (added []netlink.Route, err error) {
	for _, r := range routes {
		if err := n.AddRoute(r); err != nil {
			return added, fmt.Errorf("add route to %v: %w", r.Dst, err)
		}
		added = append(added, r)
	}
	return added, nil
}

// wrapInner puts err under the code that it has already, or sbxerr.Network.
func wrapInner(op string, err error) error {
	if code := sbxerr.Of(err); err != nil && code != sbxerr.Unknown {
		return sbxerr.Wrap(code, op, err)
	}
	return sbxerr.Wrap(sbxerr.Network, op, err)
}
