package address

import (
	"net/netip"
	"testing"
)

type host map[netip.Addr]bool

func (h host) Add(a netip.Addr) error    { h[a] = true; return nil }
func (h host) Remove(a netip.Addr) error { delete(h, a); return nil }

func TestPool(t *testing.T) {
	h := host{}
	p := New(netip.MustParsePrefix("10.0.0.0/30"), h)
	if err := p.Restore("old", "10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if err := p.Restore("other", "10.0.0.1"); err == nil {
		t.Error("two pods have one address")
	}
	if a, err := p.Take("old"); err != nil || a != "10.0.0.1" {
		t.Errorf("old has %s, %v", a, err)
	}
	a, errA := p.Take("a")
	b, errB := p.Take("b")
	if errA != nil || errB != nil || a == b || a == "10.0.0.1" || b == "10.0.0.1" {
		t.Errorf("a has %s, %v; b has %s, %v", a, errA, b, errB)
	}
	if c, err := p.Take("c"); err == nil {
		t.Errorf("c has %s of a range that is used up", c)
	}
	if err := p.Release("a"); err != nil || len(h) != 2 {
		t.Errorf("%d addresses are left, %v", len(h), err)
	}
	if c, err := p.Take("c"); err != nil || c != a {
		t.Errorf("c has %s, %v", c, err)
	}
}
