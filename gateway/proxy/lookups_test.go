package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/policy"
)

// descriptors counts those that this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Connections to a name for which nobody answers take few descriptors beside their own.
func TestConnectionsToASilentName(t *testing.T) {
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	up, err := dns.NewUpstream([]netip.AddrPort{netip.MustParseAddrPort(silent.LocalAddr().String())})
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Resolver = up.Share() })
	const connections, lookups = 200, 2 // sockets: all want the same name
	before := descriptors(t)
	for range connections {
		b.dial("a.test", 22)
	}
	most := before + 2*connections + lookups + 4                                                                    // both ends are here
	for deadline := time.Now().Add(10 * time.Second); b.Connections() < connections; time.Sleep(time.Millisecond) { // no event tells of one
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d connections are being made", b.Connections(), connections)
		}
	}
	if err := silent.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := silent.ReadFrom(make([]byte, 512)); err != nil {
		t.Fatalf("nobody asks: %v", err)
	}
	for range 50 {
		if n := descriptors(t); n > most {
			t.Fatalf("%d descriptors are open for %d connections, which have %d at both ends", n-before, connections, 2*connections)
		}
		time.Sleep(time.Millisecond)
	}
}

// noPlace is a resolver that is at its limit.
type noPlace struct{}

func (noPlace) Resolve(context.Context, policy.Name) (policy.Resolution, error) {
	return policy.Resolution{}, sbxerr.New(sbxerr.EgressBusy, "dns.resolve", "too many names at once")
}

// A connection whose name cannot be asked for is refused by a limit: that is no failure of
// the destination, nor of the upstream proxy.
func TestNoPlaceForALookup(t *testing.T) {
	at := func(c *Config) { c.Resolver = noPlace{} }
	direct := start(t, allow("a.test:22+80"), echo, at)
	through, _ := startThrough(t, outward, good, at)
	for host, b := range map[string]*bench{"a.test": direct, "a.example.com": through} {
		if got, err := io.ReadAll(b.dial(host, 22)); err == nil || len(got) > 0 {
			t.Errorf("%s: %q, %v; want a reset", host, got, err)
		}
		if a := b.record(); summary(a) != "refused "+host+" invalid AddrPort limit of lookups SBX-706" || a.Reason != "too many names at once" {
			t.Errorf("%s: %+v", host, a)
		}
	}
	got, err := talk(direct.dial("a.test", 80), "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
	if err != nil || !strings.HasPrefix(got, "HTTP/1.1 429 ") || !strings.Contains(got, "SBX-706\ntoo many names at once\n") {
		t.Errorf("%q, %v", got, err)
	}
}
