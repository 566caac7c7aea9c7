package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// inside is what a redirect needs of a namespace; tests bring one in memory.
type inside interface {
	Routes() ([]netlink.Route, error) // those that lead elsewhere than to loopback addresses
	RouteAdd(*netlink.Route) error
	RouteDel(*netlink.Route) error
	Listen() (*Sockets, error)
}

// InstallRedirect lets connections to the prefixes of r, and DNS, reach the returned sockets
// from the namespace at path. Nothing else passes: Program or Stock.Take put the rules in
// force before. The caller closes the sockets.
//
// Where there is a redirect already, routes are put right and the sockets opened anew; those
// of before must be closed. On failure nothing leads anywhere. Prefixes that cannot be led
// have code sbxerr.NetPolicy.
func InstallRedirect(path string, r Redirect) (*Sockets, error) {
	const op = "netns.install_redirect"
	declared, err := r.plan(op)
	if err != nil {
		return nil, err
	}
	n, err := openInside(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer n.Close()
	s, err := install(n, declared)
	return s, wrapInner(op, err)
}

// install closes first and connects last, so that wherever it fails nothing leads anywhere:
// without a route there is no way to the sockets.
func install(n inside, declared []netlink.Route) (_ *Sockets, err error) {
	before, err := n.Routes()
	if err != nil {
		return nil, err
	}
	if err := removeRoutes(n, before); err != nil {
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

// UpdateRedirect changes the prefixes of a namespace with a redirect. Those that go lead
// nowhere before one that comes leads anywhere, and while one of them cannot be
// removed none is added. After a failure UpdateRedirect may be called again.
// Connections that are established are the gateway's to cut.
func UpdateRedirect(path string, r Redirect) error {
	const op = "netns.update_redirect"
	declared, err := r.plan(op)
	if err != nil {
		return err
	}
	n, err := openInside(path)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer n.Close()
	return wrapInner(op, update(n, declared))
}

func update(n inside, declared []netlink.Route) error {
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
		if err := n.RouteDel(&r); err != nil {
			errs = append(errs, fmt.Errorf("remove route to %v: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// addRoutes returns the routes that it added, also when it fails.
func addRoutes(n inside, routes []netlink.Route) (added []netlink.Route, err error) {
	for _, r := range routes {
		if err := n.RouteAdd(&r); err != nil {
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
