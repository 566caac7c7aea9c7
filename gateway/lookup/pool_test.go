package lookup

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

func newPool(t testing.TB, limit int, given map[policy.Name]netip.Addr) *Pool {
	t.Helper()
	p, err := NewPool(limit, given)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPoolGivesEachNameItsOwn(t *testing.T) {
	p := newPool(t, 1000, nil)
	p.next = hosts - 3 // so that it wraps around
	seen := map[netip.Addr]policy.Name{}
	for i := range 1000 {
		name := policy.Name(fmt.Sprintf("h%d.test", i))
		addr, err := p.Address(name)
		if err != nil || !policy.Pool.Contains(addr) || seen[addr] != "" {
			t.Fatalf("%s: %s (also %q), %v", name, addr, seen[addr], err)
		}
		if addr == number(0) || addr == number(1) || addr == number(hosts) {
			t.Errorf("%s was kept back, and given to %s", addr, name)
		}
		seen[addr] = name
	}
	for addr, name := range seen {
		again, err := p.Address(name)
		back, ok := p.Name(addr)
		if again != addr || err != nil || back != name || !ok {
			t.Errorf("%s: %s, then %s, %v; back %q", name, addr, again, err, back)
		}
	}
	if addr, err := p.Address("one.more.test"); sbxerr.Of(err) != sbxerr.EgressBusy || addr.IsValid() {
		t.Errorf("past the limit: %s, %v", addr, err)
	}
	if name, ok := p.Name(number(0)); ok {
		t.Errorf("an address that was not given means %q", name)
	}
}

func TestPoolGoesOn(t *testing.T) {
	first := newPool(t, 10, nil)
	a, _ := first.Address("a.test")
	second := newPool(t, 10, first.Given())
	second.next = uint32(a.As4()[1]-18)<<16 | uint32(a.As4()[2])<<8 | uint32(a.As4()[3])
	b, err := second.Address("b.test")
	if again, _ := second.Address("a.test"); again != a || b == a || err != nil {
		t.Errorf("a.test was %s, is %s; b.test is %s, %v", a, again, b, err)
	}
	for name, given := range map[string]map[policy.Name]netip.Addr{
		"outside": {"a.test": netip.MustParseAddr("10.0.0.1")},
		"twice":   {"a.test": a, "b.test": a},
	} {
		if _, err := NewPool(10, given); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, limit := range []int{-1, 0, MaxNames + 1} {
		if _, err := NewPool(limit, nil); err == nil {
			t.Errorf("a pool of %d names", limit)
		}
	}
}

// A pool that is full to the last address ends, and each address is used once.
func TestPoolFull(t *testing.T) {
	t.Parallel()
	p := newPool(t, MaxNames, nil)
	for i := range MaxNames {
		if _, err := p.Address(policy.Name(fmt.Sprintf("h%d.test", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.names) != MaxNames || len(p.addresses) != MaxNames {
		t.Errorf("%d addresses for %d names", len(p.names), len(p.addresses))
	}
}

func TestPoolTogether(t *testing.T) {
	p := newPool(t, 100, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 50 {
				if _, err := p.Address(policy.Name(fmt.Sprintf("h%d.test", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if len(p.Given()) != 50 {
		t.Errorf("%d names", len(p.Given()))
	}
}
