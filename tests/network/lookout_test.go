package network

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// lookout looks at all packets of a namespace, and knows which of them have a reason to
// be there.
type lookout struct {
	where    string
	capture  *capture
	harmless func(packet) bool // whatever a test is about
	expected []*expectation
}

// expectation is that packets of a kind may be seen, or must.
type expectation struct {
	what   string
	device int        // 0 is any
	from   netip.Addr // the zero Addr is any
	must   bool
	seen   bool
}

func (e *expectation) matches(p packet) bool {
	return e.what == p.what && (e.device == 0 || e.device == p.device) && (!e.from.IsValid() || e.from == p.from.Addr())
}

// unexpected returns what was seen since the last call and has no reason to be there.
func (l *lookout) unexpected() (list []string) {
	for _, p := range l.capture.take() {
		known := l.harmless(p)
		for _, e := range l.expected {
			if e.matches(p) {
				e.seen, known = true, true
			}
		}
		if !known {
			list = append(list, l.where+": "+p.String())
		}
	}
	return list
}

// settle fails t for what was seen until now and should not have been.
func (l *lookout) settle(t testing.TB) {
	t.Helper()
	for _, text := range l.unexpected() {
		t.Error(text)
	}
}

// expect lets packets be there while t lasts. Those that must be there fail it if they
// are not.
func (l *lookout) expect(t testing.TB, list ...expectation) {
	t.Helper()
	l.settle(t) // nothing from before is excused
	var mine []*expectation
	for _, e := range list {
		mine = append(mine, &e)
	}
	l.expected = append(l.expected, mine...)
	t.Cleanup(func() {
		l.settle(t)
		for _, e := range mine {
			l.expected = slices.DeleteFunc(l.expected, func(other *expectation) bool { return other == e })
			if e.must && !e.seen && !t.Failed() {
				t.Errorf("%s, not seen: %s", l.where, e.what)
			}
		}
	})
}

// asks lets the gateway ask the resolver for names while t lasts. It need not: it
// remembers for a while.
func asks(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		for _, kind := range []string{"A", "AAAA"} {
			host.lookout.expect(t, host.sends(question(kind, name, resolver), netip.MustParseAddr(resolver)))
		}
	}
}

// question is what is seen of one.
func question(kind, name, resolver string) string {
	return "asks " + kind + " " + name + " of " + resolver + ":53"
}

// reaches lets the gateway connect to addresses while t lasts, HOST:PORT, and ask the
// resolver for those that are names. That it does not connect fails t.
func reaches(t testing.TB, addresses ...string) {
	t.Helper()
	t.Cleanup(func() { host.settle(t) }) // of sandboxes too
	for _, address := range addresses {
		name, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		at := name
		if _, err := netip.ParseAddr(name); err != nil {
			asks(t, name)
			at = host.dns.address(name)
		}
		e := host.sends(kindBegin+" "+net.JoinHostPort(at, port), netip.MustParseAddr(at))
		e.must = true
		host.lookout.expect(t, e)
	}
}

// controls are packets that one of the addresses sends, which no gateway has. To each
// other they send nothing: that would be a gateway that dials one.
func controls(addresses ...string) func(packet) bool {
	var list []netip.Addr
	for _, a := range addresses {
		list = append(list, netip.MustParseAddr(a))
	}
	return func(p packet) bool {
		return slices.Contains(list, p.from.Addr()) && !slices.Contains(list, p.to.Addr())
	}
}
