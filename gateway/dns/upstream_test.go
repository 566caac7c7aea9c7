package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// upstream is the share of a sandbox alone with zones.
func upstream(t *testing.T, zones ...*zone) *Share {
	t.Helper()
	var servers []netip.AddrPort
	for _, z := range zones {
		servers = append(servers, startZone(t, z))
	}
	u, err := NewUpstream(servers)
	if err != nil {
		t.Fatal(err)
	}
	return u.Share()
}

var dual = map[string][]string{"a.test. A": {"a.test. 60 IN A 9.9.9.9"}, "a.test. AAAA": {"a.test. 60 IN AAAA 2a00::1"}}

func TestResolve(t *testing.T) {
	ctx := t.Context()
	bad := &zone{rcode: miekg.RcodeServerFailure}
	for name, tc := range map[string]struct {
		zones []*zone
		want  string
		err   error
	}{
		"both families":     {[]*zone{{records: dual}}, "[9.9.9.9 2a00::1]", nil},
		"only IPv6":         {[]*zone{{records: map[string][]string{"a.test. A": {}, "a.test. AAAA": dual["a.test. AAAA"]}}}, "[2a00::1]", nil},
		"the second server": {[]*zone{bad, {records: dual}}, "[9.9.9.9 2a00::1]", nil},
		"over TCP":          {[]*zone{{records: dual, big: true}}, "[9.9.9.9 2a00::1]", nil},
		"over UDP alone":    {[]*zone{{records: dual, big: true, mute: "tcp"}}, "[9.9.9.9 2a00::1]", nil},
		"EDNS is malformed": {[]*zone{{records: dual, edns: miekg.RcodeFormatError}}, "[9.9.9.9 2a00::1]", nil},
		"EDNS is unknown":   {[]*zone{{records: dual, edns: miekg.RcodeNotImplemented}}, "[9.9.9.9 2a00::1]", nil},
		"EDNS is dropped":   {[]*zone{{records: dual, edns: -1}}, "[9.9.9.9 2a00::1]", nil},
		"no AAAA ever":      {[]*zone{{records: dual, silent: miekg.TypeAAAA}}, "[9.9.9.9]", nil},
		"no such name":      {[]*zone{{}, {records: dual}}, "[]", ErrNoName},
		"no address":        {[]*zone{{records: map[string][]string{"a.test. A": {}, "a.test. AAAA": {}}}}, "[]", ErrNoAddress},
		"all fail":          {[]*zone{bad}, "[]", sbxerr.EgressResolve},
	} {
		u := upstream(t, tc.zones...)
		begun := time.Now()
		got, err := u.Resolve(ctx, "a.test")
		if fmt.Sprint(got.Addresses) != tc.want || !errors.Is(err, tc.err) || err != nil && sbxerr.Of(err) != sbxerr.EgressResolve {
			t.Errorf("%s: %v, %v; want %s, %v", name, got, err, tc.want, tc.err)
		}
		if took := time.Since(begun); name == "no AAAA ever" && took > tryTimeout {
			t.Errorf("%s: waited %v", name, took)
		}
	}
}

// The names between one and its addresses are told, as rules may be about them.
func TestResolveTellsAliases(t *testing.T) {
	u := upstream(t, &zone{records: map[string][]string{
		"a.test. A":    {"a.test. 60 IN CNAME B.test.", "b.test. 60 IN CNAME c.test.", "c.test. 60 IN A 9.9.9.9"},
		"a.test. AAAA": {},
	}})
	for range 2 { // from the server, and from what is kept
		got, err := u.Resolve(t.Context(), "a.test")
		if err != nil || !slices.Equal(got.Aliases, []policy.Name{"b.test", "c.test"}) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestResolveKeepsAnswers(t *testing.T) {
	z := &zone{records: dual}
	u := upstream(t, z)
	now := time.Now()
	u.upstream.cache.now = func() time.Time { return now }
	for range 3 {
		got, err := u.Resolve(t.Context(), "a.test")
		if err != nil || len(got.Addresses) != 2 {
			t.Fatal(got, err)
		}
		got.Addresses[0] = netip.Addr{} // must not reach what is kept
		if _, err := u.Resolve(t.Context(), "gone.test"); !errors.Is(err, ErrNoName) {
			t.Fatal(err)
		}
	}
	if got := z.questions(); len(got) != 4 {
		t.Errorf("asked %q", got)
	}
	now = now.Add(time.Minute)
	if got, err := u.Resolve(t.Context(), "a.test"); err != nil || !slices.Contains(got.Addresses, netip.MustParseAddr("9.9.9.9")) || len(z.questions()) != 6 {
		t.Errorf("%v, %v after %q", got, err, z.questions())
	}
}

func TestResolveEndsWithItsContext(t *testing.T) {
	u := upstream(t, &zone{records: dual, silent: miekg.TypeA})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	begun := time.Now()
	if got, err := u.Resolve(ctx, "a.test"); err == nil && len(got.Addresses) == 0 || time.Since(begun) > time.Second {
		t.Errorf("%v, %v after %v", got, err, time.Since(begun))
	}
}

func TestNewUpstreamRefuses(t *testing.T) {
	for _, servers := range [][]netip.AddrPort{nil, {{}}, {netip.MustParseAddrPort("9.9.9.9:0")}} {
		if _, err := NewUpstream(servers); sbxerr.Of(err) != sbxerr.EgressResolve {
			t.Errorf("%v: %v", servers, err)
		}
	}
}
