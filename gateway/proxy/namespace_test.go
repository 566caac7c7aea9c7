package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/dns/dnstest"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/tests/netbox"
)

// box is a sandbox's namespace with the gateway's sockets in it, a web server on
// the host's loopback, and an upstream resolver that knows its name.
type box struct {
	netbox.Box
	web   netip.AddrPort // on the host
	proxy *Proxy
	live  atomic.Pointer[policy.Policy]
	seen  chan attempt.Attempt
}

func (b *box) Record(a attempt.Attempt) { b.seen <- a }

func newBox(t *testing.T) *box {
	t.Helper()
	netbox.Need(t)
	b := &box{Box: netbox.New(t), seen: make(chan attempt.Attempt, 64), web: netip.MustParseAddrPort(serveEach(t, echo))}
	b.live.Store(compile(t, allow(fmt.Sprintf("web.example:%d,private", b.web.Port()))))
	pool, err := lookup.NewPool(100, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := dns.NewUpstream([]netip.AddrPort{dnstest.Serve(t, b.web.Addr(), "web.example")})
	if err != nil {
		t.Fatal(err)
	}
	up := all.Share()
	if b.proxy, err = New(Config{Sandbox: "box", Names: pool, Resolver: up, Local: (&ownAddresses{}).has, Recorder: b, Limits: DefaultLimits}, b.live.Load()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	var opened error
	b.Do(func() { opened = b.open(ctx, pool, up, ended) })
	if opened != nil {
		cancel()
		t.Fatal(opened)
	}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

// open sets up the namespace, and serves on sockets in it from outside.
func (b *box) open(ctx context.Context, pool *lookup.Pool, up dns.Resolver, ended chan error) error {
	sockets, err := netbox.Open()
	if err != nil {
		return err
	}
	c := dns.Config{Sandbox: "box", Policy: b.live.Load, Pool: pool, Resolver: up, Limits: dns.DefaultLimits}
	go func() { ended <- b.proxy.Serve(ctx, sockets.TCP) }()
	go func() { ended <- dns.Serve(ctx, c, sockets.DNS, sockets.DNSStream) }()
	return nil
}

// lookup asks the box's resolver, from inside.
func (b *box) lookup(t *testing.T, name string) (addr netip.Addr, rcode int) {
	t.Helper()
	var err error
	b.Do(func() { addr, rcode, err = dnstest.Ask(name) })
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return addr, rcode
}

// dial connects from inside.
func (b *box) dial(addr netip.AddrPort) (c net.Conn, err error) {
	b.Do(func() { c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp4", addr.String()) })
	if err == nil {
		err = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// A name, and only a name that is allowed, leads out of a namespace from which
// nothing else does.
func TestOutOfANamespace(t *testing.T) {
	b := newBox(t)
	port := b.web.Port()

	// The controls: the server answers on the host, and not from inside.
	if c, err := net.Dial("tcp4", b.web.String()); err != nil {
		t.Fatal(err)
	} else if got, err := talk(c.(*net.TCPConn), "x"); got != "x" || err != nil {
		t.Fatal(got, err)
	}
	if _, err := b.dial(b.web); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the host's loopback, from inside: %v", err)
	}
	if _, err := b.dial(netip.MustParseAddrPort("9.9.9.9:443")); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("an address of the internet, from inside: %v", err)
	}
	if addr, rcode := b.lookup(t, "data.attacker.example."); rcode != miekg.RcodeNameError || addr.IsValid() {
		t.Errorf("a name that is not allowed: %s, %s", addr, miekg.RcodeToString[rcode])
	}

	addr, rcode := b.lookup(t, "web.example.")
	if rcode != miekg.RcodeSuccess || !policy.Pool.Contains(addr) {
		t.Fatalf("web.example: %s, %s", addr, miekg.RcodeToString[rcode])
	}
	c, err := b.dial(netip.AddrPortFrom(addr, port))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := talk(c.(*net.TCPConn), "out and back"); got != "out and back" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if a := <-b.seen; a.Verdict != attempt.Allowed || a.Name != "web.example" || a.Address != b.web || a.Asked != netip.AddrPortFrom(addr, port) || a.Sent != 12 {
		t.Errorf("%+v", a)
	}

	for what, to := range map[string]netip.AddrPort{
		"another port":          netip.AddrPortFrom(addr, port^1),
		"an address of no name": netip.AddrPortFrom(addr.Next(), port),
	} {
		expectNothing(t, b, what, to)
	}
}

// The proxy's own port, reached without the redirect, leads nowhere.
func TestOwnListenerLeadsNowhere(t *testing.T) {
	b := newBox(t)
	addr, _ := b.lookup(t, "web.example.")
	c, err := b.dial(netip.AddrPortFrom(addr, b.web.Port()))
	if err != nil {
		t.Fatal(err)
	}
	own := netip.MustParseAddrPort(c.RemoteAddr().String())
	_ = c.Close()
	<-b.seen
	var listeners []netip.AddrPort
	b.Do(func() { listeners = listening(t) })
	listeners = slices.DeleteFunc(listeners, func(l netip.AddrPort) bool { return l.Port() == 53 || l == own })
	if len(listeners) != 1 {
		t.Fatalf("listening: %v", listeners)
	}
	expectNothing(t, b, "the proxy's own port", listeners[0])
}

// listening lists the TCP listeners in the calling thread's namespace.
func listening(t *testing.T) []netip.AddrPort {
	t.Helper()
	table, err := os.ReadFile("/proc/thread-self/net/tcp")
	if err != nil {
		t.Error(err)
		return nil
	}
	var all []netip.AddrPort
	for _, line := range strings.Split(string(table), "\n")[1:] {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "0A" {
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			t.Error(err)
			continue
		}
		all = append(all, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(n)))
	}
	return all
}

// expectNothing connects and expects to be reset, with a record of the refusal.
func expectNothing(t *testing.T, b *box, what string, to netip.AddrPort) {
	t.Helper()
	c, err := b.dial(to)
	if err == nil {
		_, err = io.ReadAll(c)
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: %v; want a reset", what, err)
	}
	if a := <-b.seen; a.Verdict == attempt.Allowed || a.Code != sbxerr.EgressDenied && a.Code != sbxerr.Gateway || a.Address.IsValid() {
		t.Errorf("%s: %+v", what, a)
	}
}
