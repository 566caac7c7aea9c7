package netns

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var (
	pool   = netip.MustParsePrefix("198.18.0.0/15")
	office = netip.MustParsePrefix("10.1.0.0/16")
	one    = netip.MustParsePrefix("192.0.2.7/32")
)

// routesTo are those of prefixes.
func routesTo(prefixes ...netip.Prefix) (routes []netlink.Route) {
	for _, p := range prefixes {
		routes = append(routes, route(p))
	}
	return routes
}

// fakeInside is a namespace in memory that fails at the n-th call.
type fakeInside struct {
	t       *testing.T
	failAt  int // 1 is the first call; 0 never
	calls   int
	live    []netlink.Route
	sockets *Sockets
	opened  []*os.File
}

func (f *fakeInside) call() error {
	f.calls++
	if f.calls == f.failAt {
		return errInjected
	}
	return nil
}

func (f *fakeInside) Routes() ([]netlink.Route, error) { return slices.Clone(f.live), f.call() }

func (f *fakeInside) RouteAdd(r *netlink.Route) error {
	if err := f.call(); err != nil {
		return err
	}
	f.live = append(f.live, *r)
	return nil
}

func (f *fakeInside) RouteDel(r *netlink.Route) error {
	if err := f.call(); err != nil {
		return err
	}
	f.live = slices.DeleteFunc(f.live, r.Equal)
	return nil
}

func (f *fakeInside) Listen() (*Sockets, error) {
	if err := f.call(); err != nil {
		return nil, err
	}
	f.sockets = &Sockets{TCP: f.file(), DNSPacket: f.file(), DNSStream: f.file()}
	return f.sockets, nil
}

func (f *fakeInside) file() *os.File {
	file, err := os.Open(os.DevNull)
	if err != nil {
		f.t.Fatal(err)
	}
	f.opened = append(f.opened, file)
	return file
}

// leads lists the prefixes that lead to a socket that is open.
func (f *fakeInside) leads() []netip.Prefix {
	for _, file := range f.opened {
		if _, err := file.Stat(); err != nil {
			return nil
		}
	}
	var all []netip.Prefix
	for _, r := range f.live {
		all = append(all, netip.MustParsePrefix(r.Dst.String()))
	}
	return all
}

func TestInstallFailsClosed(t *testing.T) {
	for name, before := range map[string][]netlink.Route{
		"new":           nil,
		"led before":    {route(pool), route(one)},
		"led elsewhere": {{LinkIndex: loIndex, Dst: cidr("0.0.0.0/0")}},
	} {
		whole := &fakeInside{t: t, live: slices.Clone(before)}
		s, err := install(whole, routesTo(office, pool))
		if err != nil || s != whole.sockets || !slices.Equal(whole.leads(), []netip.Prefix{office, pool}) {
			t.Fatalf("%s: leads %v, %v", name, whole.leads(), err)
		}
		_ = s.Close()
		for n := 1; n <= whole.calls; n++ {
			f := &fakeInside{t: t, live: slices.Clone(before), failAt: n}
			s, err := install(f, routesTo(office, pool))
			if !errors.Is(err, errInjected) || s != nil {
				t.Errorf("%s, call %d fails: %v, %v; want the cause", name, n, s, err)
			}
			for _, file := range f.opened {
				if _, err := file.Stat(); err == nil {
					t.Errorf("%s, call %d fails: socket %d is still open", name, n, slices.Index(f.opened, file))
				}
			}
			// Only before anything could be changed is there something left,
			// and then the sockets of before are not open any more.
			if left := len(f.live); left > 0 && n > 1+len(before) {
				t.Errorf("%s, call %d fails: %d routes are left", name, n, left)
			}
		}
	}
}

// Whatever fails, and so at every moment, nothing leads that is not wanted,
// but for what was there before it was first tried to remove it.
func TestUpdateNeverLeadsWhatIsNotWanted(t *testing.T) {
	before := []netlink.Route{route(pool), route(one)}
	want := routesTo(office, pool)
	whole := &fakeInside{t: t, live: slices.Clone(before)}
	if err := update(whole, want); err != nil || !slices.Equal(whole.leads(), []netip.Prefix{pool, office}) {
		t.Fatalf("leads %v, %v", whole.leads(), err)
	}
	if whole.calls != 3 {
		t.Errorf("made %d calls; want one look, one removal and one addition", whole.calls)
	}
	for n := 1; n <= whole.calls; n++ {
		f := &fakeInside{t: t, live: slices.Clone(before), failAt: n}
		if err := update(f, want); !errors.Is(err, errInjected) {
			t.Errorf("call %d fails: %v; want the cause", n, err)
		}
		if slices.Contains(f.leads(), office) && slices.Contains(f.leads(), one.Masked()) {
			t.Errorf("call %d fails: %v lead", n, f.leads())
		}
		f.failAt = 0
		if err := update(f, want); err != nil || !slices.Equal(f.leads(), []netip.Prefix{pool, office}) {
			t.Errorf("again after call %d failed: %v, %v", n, f.leads(), err)
		}
	}
}

func TestPlan(t *testing.T) {
	got, err := Redirect{Prefixes: []netip.Prefix{pool, one, office, pool}}.plan("x")
	want := append(routesTo(office, one, pool), dropRoute[familyV4], dropRoute[familyV6])
	if err != nil || !slices.EqualFunc(got, want, netlink.Route.Equal) {
		t.Errorf("plan = %v, %v; want %v", got, err, want)
	}
	for _, bad := range []netip.Prefix{
		{},
		netip.MustParsePrefix("10.1.2.3/16"),
		netip.MustParsePrefix("2001:db8::/32"),
		netip.MustParsePrefix("::ffff:10.0.0.0/104"),
		netip.MustParsePrefix("127.0.0.1/32"),
		netip.MustParsePrefix("0.0.0.0/0"),
	} {
		_, err := Redirect{Prefixes: []netip.Prefix{pool, bad}}.plan("x")
		if sbxerr.Of(err) != sbxerr.NetPolicy || sbxerr.RemedyOf(err) != gateRemedy {
			t.Errorf("plan of %v = %v; want a refusal", bad, err)
		}
		// A refusal comes before the namespace is looked for.
		if _, err := InstallRedirect("/nonexistent", Redirect{Prefixes: []netip.Prefix{bad}}); sbxerr.Of(err) != sbxerr.NetPolicy {
			t.Errorf("InstallRedirect to %v = %v", bad, err)
		}
		if err := UpdateRedirect("/nonexistent", Redirect{Prefixes: []netip.Prefix{bad}}); sbxerr.Of(err) != sbxerr.NetPolicy {
			t.Errorf("UpdateRedirect to %v = %v", bad, err)
		}
	}
}
