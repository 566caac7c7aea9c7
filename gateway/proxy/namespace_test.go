package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/sbxerr"
)

// needNamespaces skips t unless network namespaces and rules in them can be made.
func needNamespaces(t testing.TB) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	switch {
	case missing == "":
	case os.Getenv("CAISSON_TEST_STRICT") != "":
		t.Fatal("needs " + missing)
	default:
		t.Skip("needs " + missing)
	}
}

// inside is a network namespace with only lo, in which the functions that are
// sent to it run, one after the other, on one thread.
type inside chan func()

func (in inside) do(fn func()) {
	done := make(chan struct{})
	in <- func() { defer close(done); fn() }
	<-done
}

// onThread runs fn on a thread that ends with it, and the namespace that it
// entered. The first thread of a process cannot end, so it only waits.
func onThread(fn func()) {
	goruntime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn() // never unlocked
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onThread(fn) }()
	<-done
	goruntime.UnlockOSThread()
}

func newNamespace(t *testing.T) inside {
	t.Helper()
	in := make(inside)
	made := make(chan error)
	go onThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if made <- err; err != nil {
			return
		}
		for fn := range in {
			fn()
		}
	})
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(in) })
	return in
}

// command runs a program in the namespace of the calling thread.
func command(t *testing.T, line string) {
	t.Helper()
	fields := strings.Fields(line)
	if out, err := exec.Command(fields[0], fields[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", line, err, out)
	}
}

// box is a sandbox's namespace with the gateway's sockets in it, a web server on
// the host's loopback, and an upstream resolver that knows its name.
type box struct {
	inside
	web   netip.AddrPort // on the host
	proxy *Proxy
	live  atomic.Pointer[policy.Policy]
	seen  chan Attempt
}

func (b *box) Record(a Attempt) { b.seen <- a }

func newBox(t *testing.T) *box {
	t.Helper()
	needNamespaces(t)
	b := &box{inside: newNamespace(t), seen: make(chan Attempt, 64), web: netip.MustParseAddrPort(serveEach(t, echo))}
	b.live.Store(compile(t, allow(fmt.Sprintf("web.example:%d,private", b.web.Port()))))
	pool, err := dns.NewPool(100, nil)
	if err != nil {
		t.Fatal(err)
	}
	up, err := dns.NewUpstream([]netip.AddrPort{resolverFor(t, b.web.Addr())})
	if err != nil {
		t.Fatal(err)
	}
	if b.proxy, err = New(Config{Sandbox: "box", Names: pool, Resolver: up, Recorder: b, Limits: DefaultLimits}, b.live.Load()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	var opened error
	b.do(func() { opened = b.open(ctx, t, pool, up, ended) })
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
func (b *box) open(ctx context.Context, t *testing.T, pool *dns.Pool, up dns.Resolver, ended chan error) error {
	command(t, "ip link set lo up")
	// Without src the kernel finds no source address on lo, and takes 0.0.0.0.
	command(t, "ip route add local 198.18.0.0/15 dev lo src 127.0.0.1")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	pc, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	command(t, "iptables -w -t nat -A OUTPUT -p tcp -d 198.18.0.0/15 -j REDIRECT --to-ports "+strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	c := dns.Config{Sandbox: "box", Policy: b.live.Load, Pool: pool, Resolver: up, Limits: dns.DefaultLimits}
	go func() { ended <- b.proxy.Serve(ctx, l.(*net.TCPListener)) }()
	go func() { ended <- dns.Serve(ctx, c, pc, tcp) }()
	return nil
}

// resolverFor serves web.example as addr, on the host.
func resolverFor(t *testing.T, addr netip.Addr) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &miekg.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		r := new(miekg.Msg).SetReply(q)
		if q.Question[0].Name == "web.example." && q.Question[0].Qtype == miekg.TypeA {
			r.Answer = []miekg.RR{&miekg.A{Hdr: miekg.RR_Header{Name: "web.example.", Rrtype: miekg.TypeA, Class: miekg.ClassINET, Ttl: 1}, A: addr.AsSlice()}}
		}
		_ = w.WriteMsg(r)
	})}
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// lookup asks the box's resolver, from inside.
func (b *box) lookup(t *testing.T, name string) (addr netip.Addr, rcode int) {
	t.Helper()
	b.do(func() {
		r, _, err := (&miekg.Client{Timeout: 10 * time.Second}).Exchange(new(miekg.Msg).SetQuestion(name, miekg.TypeA), "127.0.0.1:53")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		rcode = r.Rcode
		if len(r.Answer) == 1 {
			addr, _ = netip.AddrFromSlice(r.Answer[0].(*miekg.A).A.To4())
		}
	})
	return addr, rcode
}

// dial connects from inside.
func (b *box) dial(addr netip.AddrPort) (c net.Conn, err error) {
	b.do(func() { c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp4", addr.String()) })
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
	if addr, rcode := b.lookup(t, "data.attacker.example."); rcode != miekg.RcodeRefused || addr.IsValid() {
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
	if a := <-b.seen; a.Verdict != Allowed || a.Name != "web.example" || a.Address != b.web || a.Asked != netip.AddrPortFrom(addr, port) || a.Sent != 12 {
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
	b.do(func() { listeners = listening(t) })
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
	if a := <-b.seen; a.Verdict == Allowed || a.Code != sbxerr.EgressDenied && a.Code != sbxerr.Gateway || a.Address.IsValid() {
		t.Errorf("%s: %+v", what, a)
	}
}
