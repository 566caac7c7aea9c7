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
	return n.inside()
}

// inside takes n over.
func (n *Namespace) inside() (*kernel, error) {
	k := &kernel{Namespace: n}
	err := n.Do(func() (err error) {
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

// families lists those that the kernel has.
func families() ([]family, error) {
	v6, err := hasIPv6()
	if err != nil || !v6 {
		return []family{familyV4}, err
	}
	return []family{familyV4, familyV6}, nil
}
