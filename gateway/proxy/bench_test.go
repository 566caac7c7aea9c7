package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

// fakeResolver answers from a table and counts.
type fakeResolver struct {
	mu        sync.Mutex
	addresses map[policy.Name][]string
	aliases   map[policy.Name][]policy.Name
	asked     []policy.Name
}

func (r *fakeResolver) Resolve(ctx context.Context, name policy.Name) (policy.Resolution, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, name)
	found := policy.Resolution{Aliases: r.aliases[name]}
	for _, a := range r.addresses[name] {
		found.Addresses = append(found.Addresses, netip.MustParseAddr(a))
	}
	if found.Addresses == nil {
		return found, sbxerr.New(sbxerr.EgressResolve, "test", "no such name")
	}
	return found, nil
}

func (r *fakeResolver) set(name policy.Name, addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addresses[name] = addresses
}

// fakeDialer leads every address to one server on loopback, but for those that
// are dead, and counts.
type fakeDialer struct {
	mu     sync.Mutex
	to     string
	dead   []string
	dialed []string
	before func() // each dial
}

func (d *fakeDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.dialed = append(d.dialed, address)
	dead, before, to := slices.Contains(d.dead, address), d.before, d.to
	d.mu.Unlock()
	if before != nil {
		before()
	}
	if dead {
		return nil, errors.New("connection refused")
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

func (d *fakeDialer) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dialed)
}

// ownAddresses are those of a host.
type ownAddresses struct {
	mu    sync.Mutex
	list  []string
	fails error
}

func (o *ownAddresses) has(addr netip.Addr) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.list, addr.String()), o.fails
}

func (o *ownAddresses) set(err error, list ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list, o.fails = list, err
}

// bench is a running proxy and all around it.
type bench struct {
	*Proxy
	t        testing.TB
	pool     *lookup.Pool
	resolver *fakeResolver
	dialer   *fakeDialer
	own      ownAddresses
	records  chan attempt.Attempt
	listener *net.TCPListener
	origins  chan netip.AddrPort
	stop     func() // ends Serve and waits
}

func (b *bench) Record(a attempt.Attempt) { b.records <- a }

func compile(t testing.TB, s policy.Spec) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func allow(rules ...string) policy.Spec { return policy.Spec{Mode: policy.Allow, Allow: rules} }

func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// serveEach runs handle for each connection to a listener of its own.
func serveEach(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

// echo sends back all it gets, and then says that it is done.
func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

func start(t testing.TB, spec policy.Spec, server func(*net.TCPConn), change func(*Config)) *bench {
	t.Helper()
	pool, err := lookup.NewPool(1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		t: t, pool: pool, records: make(chan attempt.Attempt, 4096), origins: make(chan netip.AddrPort), listener: listen(t),
		resolver: &fakeResolver{addresses: map[policy.Name][]string{"a.test": {"9.9.9.9"}, "b.test": {"9.9.9.8"}}},
		dialer:   &fakeDialer{to: serveEach(t, server)},
	}
	c := Config{
		Sandbox: "box", Names: pool, Resolver: b.resolver, Local: b.own.has, Recorder: b, Limits: DefaultLimits, Dialer: b.dialer,
		Origin: func(*net.TCPConn) (netip.AddrPort, error) { return <-b.origins, nil },
	}
	if change != nil {
		change(&c)
	}
	if b.Proxy, err = New(c, compile(t, spec)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, b.listener) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil || b.Connections() != 0 {
				t.Errorf("Serve: %v; %d connections", err, b.Connections())
			}
		case <-time.After(10 * time.Second):
			t.Error("Serve did not end")
		}
	})
	t.Cleanup(b.stop)
	return b
}

// dial makes a connection that was meant for host, a name or an address.
func (b *bench) dial(host string, port uint16) *net.TCPConn {
	b.t.Helper()
	addr, err := netip.ParseAddr(host)
	if err != nil {
		if addr, err = b.pool.Address(policy.Name(host)); err != nil {
			b.t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", b.listener.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		b.t.Fatal(err)
	}
	select {
	case b.origins <- netip.AddrPortFrom(addr, port):
	case <-time.After(10 * time.Second):
		b.t.Fatal("the connection was not taken")
	}
	return c.(*net.TCPConn)
}

// expectReset makes a connection that is to be ended at once, which may be before
// its maker hears that it was made.
func (b *bench) expectReset() {
	b.t.Helper()
	addr, err := b.pool.Address("a.test")
	if err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case b.origins <- netip.AddrPortFrom(addr, 22):
		case <-ended:
		}
	}()
	c, err := net.Dial("tcp", b.listener.Addr().String())
	if err == nil {
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		b.t.Errorf("%v; want a reset", err)
	}
}

// record is the next one that was told.
func (b *bench) record() attempt.Attempt {
	b.t.Helper()
	select {
	case a := <-b.records:
		return a
	case <-time.After(20 * time.Second):
		b.t.Fatal("no record")
		return attempt.Attempt{}
	}
}

// talk sends text, says that it is done, and reads all that comes back.
func talk(c *net.TCPConn, text string) (string, error) {
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	got, err := io.ReadAll(c)
	return string(got), err
}

func summary(a attempt.Attempt) string {
	return fmt.Sprintf("%s %s %s %s %s", a.Verdict, a.Name, a.Address, a.Rule, a.Code)
}
