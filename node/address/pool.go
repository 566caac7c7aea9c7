// Package address gives pods addresses of the host's loopback interface: sandboxes have nothing
// but their own lo, and the daemon publishes their ports at these.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"
)

// Host puts addresses on an interface.
type Host interface {
	Add(netip.Addr) error
	Remove(netip.Addr) error
}

// Pool is the addresses of one node's range.
type Pool struct {
	host  Host
	cidr  netip.Prefix
	mu    sync.Mutex
	taken map[types.UID]netip.Addr
	used  map[netip.Addr]bool
	next  netip.Addr
}

// New returns a Pool of all addresses of cidr but its first.
func New(cidr netip.Prefix, host Host) *Pool {
	cidr = cidr.Masked()
	return &Pool{host: host, cidr: cidr, taken: map[types.UID]netip.Addr{}, used: map[netip.Addr]bool{}, next: cidr.Addr().Next()}
}

// Size is how many pods may have an address of cidr.
func Size(cidr netip.Prefix) int64 {
	return int64(1)<<min(cidr.Addr().BitLen()-cidr.Bits(), 62) - 1
}

// Take returns the address of a pod, a new one the first time. Addresses come round last.
func (p *Pool) Take(uid types.UID) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.taken[uid]; ok {
		return a.String(), nil
	}
	first := p.next
	for {
		a := p.next
		if p.next = a.Next(); !p.cidr.Contains(p.next) {
			p.next = p.cidr.Addr().Next()
		}
		if !p.used[a] {
			return a.String(), p.put(uid, a)
		}
		if p.next == first {
			return "", fmt.Errorf("the node has no free address in %s", p.cidr)
		}
	}
}

// Of returns the address that a pod has; empty: none.
func (p *Pool) Of(uid types.UID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.taken[uid]; ok {
		return a.String()
	}
	return ""
}

// Restore gives a pod the address that it had before this process began. The first one counts.
func (p *Pool) Restore(uid types.UID, address string) error {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.taken[uid]; ok {
		return nil
	}
	if p.used[a] {
		return fmt.Errorf("%s is another pod's", a)
	}
	return p.put(uid, a)
}

func (p *Pool) put(uid types.UID, a netip.Addr) error {
	if err := p.host.Add(a); err != nil {
		return err
	}
	p.taken[uid], p.used[a] = a, true
	return nil
}

// Release gives an address back.
func (p *Pool) Release(uid types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.taken[uid]
	if !ok {
		return nil
	}
	delete(p.taken, uid)
	delete(p.used, a)
	return p.host.Remove(a)
}

// Loopback is the host's lo.
type Loopback struct{}

// Add implements Host.
func (Loopback) Add(a netip.Addr) error {
	return change(a, netlink.AddrAdd, syscall.EEXIST)
}

// Remove implements Host.
func (Loopback) Remove(a netip.Addr) error {
	return change(a, netlink.AddrDel, syscall.EADDRNOTAVAIL)
}

func change(a netip.Addr, do func(netlink.Link, *netlink.Addr) error, harmless error) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	n := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
	if err := do(lo, &netlink.Addr{IPNet: n}); err != nil && !errors.Is(err, harmless) {
		return fmt.Errorf("address %s on lo: %w", a, err)
	}
	return nil
}
