package lookup

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// The addresses of policy.Pool by number. The first two are never given out:
// 198.18.0.1 is left for the resolver itself.
const (
	firstHost = 2
	hosts     = 1<<17 - 1 // the last one is kept back as well
)

// MaxNames is the most names that a Pool can hold.
const MaxNames = hosts - firstHost

// Pool gives each name of one sandbox an address of its own. An address never
// changes its meaning while the pool lives, and names are never forgotten:
// past the limit there are no new ones.
type Pool struct {
	limit int

	mu        sync.RWMutex
	next      uint32 // the number of the next address to try
	names     map[netip.Addr]policy.Name
	addresses map[policy.Name]netip.Addr
}

// NewPool makes a pool of at most limit names, with those in given, which come
// from Given. It begins anywhere, so that an address that a sandbox kept from
// an earlier pool most likely means nothing rather than another name.
func NewPool(limit int, given map[policy.Name]netip.Addr) (*Pool, error) {
	if limit < 1 || limit > MaxNames {
		return nil, sbxerr.New(sbxerr.Internal, "dns.pool", "a pool of %d names is not in 1 to %d", limit, MaxNames)
	}
	p := &Pool{limit: limit, names: map[netip.Addr]policy.Name{}, addresses: map[policy.Name]netip.Addr{}}
	p.next = firstHost + rand.Uint32N(hosts-firstHost)
	for name, addr := range given {
		if _, taken := p.names[addr]; taken || !policy.Pool.Contains(addr) {
			return nil, sbxerr.New(sbxerr.Internal, "dns.pool", "the address %s of %s is taken or not in %s", addr, name, policy.Pool)
		}
		p.names[addr], p.addresses[name] = name, addr
	}
	return p, nil
}

// Address returns the address of name, and gives it one if it has none. A full
// pool refuses new names with code sbxerr.EgressBusy.
func (p *Pool) Address(name policy.Name) (netip.Addr, error) {
	if addr, ok := p.Lookup(name); ok {
		return addr, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr, ok := p.addresses[name]; ok {
		return addr, nil
	}
	if len(p.names) >= p.limit {
		return netip.Addr{}, sbxerr.WithRemedy(sbxerr.EgressBusy, "dns.pool",
			fmt.Errorf("give %s an address: the sandbox used %d names already, which is the limit", name, p.limit), "start another sandbox for more names")
	}
	addr := p.free()
	p.names[addr], p.addresses[name] = name, addr
	return addr, nil
}

// free finds an address that means nothing. There is one: limit is below the
// size of the pool.
func (p *Pool) free() netip.Addr {
	for {
		addr := number(p.next)
		if p.next++; p.next >= hosts {
			p.next = firstHost
		}
		if _, taken := p.names[addr]; !taken {
			return addr
		}
	}
}

// number is the n-th address of policy.Pool.
func number(n uint32) netip.Addr {
	base := policy.Pool.Addr().As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+n)
	return netip.AddrFrom4(b)
}

// Lookup returns the address of name if it has one.
func (p *Pool) Lookup(name policy.Name) (netip.Addr, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	addr, ok := p.addresses[name]
	return addr, ok
}

// Name returns what addr means.
func (p *Pool) Name(addr netip.Addr) (policy.Name, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	name, ok := p.names[addr]
	return name, ok
}

// Given returns all names and their addresses, for a pool that goes on with them.
func (p *Pool) Given() map[policy.Name]netip.Addr {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.addresses)
}
