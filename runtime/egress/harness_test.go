package egress

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/dns/dnstest"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/usage"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/netbox"
)

// program is caisson-gateway: the one of the build, or one made for these tests.
var program = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("CAISSON_BIN_DIR"); dir != "" {
		return filepath.Join(dir, "caisson-gateway"), nil
	}
	dir, err := os.MkdirTemp("", "caisson-gateway")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "caisson-gateway")
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/caisson-gateway")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	if os.Getenv(daemonEnv) != "" {
		playDaemon()
	}
	code := m.Run()
	if path, err := program(); err == nil && os.Getenv("CAISSON_BIN_DIR") == "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// need skips t unless it can make namespaces and rules in them.
func need(t testing.TB) string {
	t.Helper()
	netbox.Need(t, "go")
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// seen is an Observer that remembers.
type seen struct {
	mu       sync.Mutex
	attempts []attempt.Attempt
	queries  []lookup.Query
	arrivals []attempt.Arrival
	uses     []usage.Use
	names    map[policy.Name]netip.Addr
}

func (s *seen) Used(u usage.Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses = append(s.uses, u)
}

func (s *seen) Arrived(a attempt.Arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, a)
}

func (s *seen) Attempted(a attempt.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
}

func (s *seen) Queried(q lookup.Query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, q)
}

func (s *seen) Named(_ string, name policy.Name, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[policy.Name]netip.Addr{}
	}
	s.names[name] = addr
}

func (s *seen) verdicts() []attempt.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v []attempt.Verdict
	for _, a := range s.attempts {
		v = append(v, a.Verdict)
	}
	return v
}

func (s *seen) knows(name policy.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name].IsValid()
}

// fast are deadlines for tests.
var fast = timing{
	ping: 50 * time.Millisecond, patience: 500 * time.Millisecond, start: 20 * time.Second,
	minBackoff: 10 * time.Millisecond, maxBackoff: 100 * time.Millisecond, stable: time.Minute,
}

// world is a gateway, an upstream server and a resolver that knows it.
type world struct {
	*Gateway
	seen seen
	web  netip.AddrPort // echoes; web.example and other.example lead there
}

func newWorld(t testing.TB, deadlines timing) *world {
	t.Helper()
	w := &world{web: serveEcho(t)}
	w.Gateway = New(Options{
		Program: need(t), Servers: []netip.AddrPort{dnstest.Serve(t, w.web.Addr(), "web.example", "other.example")}, Observer: &w.seen,
		Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	})
	w.timing = deadlines
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// allow lets a sandbox reach names at the port of the upstream server.
func (w *world) allow(names ...string) policy.Spec {
	s := policy.Spec{Mode: policy.Allow}
	for _, n := range names {
		s.Allow = append(s.Allow, fmt.Sprintf("%s:%d,private", n, w.web.Port()))
	}
	return s
}

// exact are the counters of a sandbox as they are now.
func (w *world) exact(t testing.TB, id string) (Counters, error) {
	err := w.Refresh(t.Context(), "")
	got, _ := w.View(id)
	return got.Counters, err
}

func (w *world) pid() int {
	s := w.Status()
	return s.PID
}

func serveEcho(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(struct{ io.Writer }{c}, c) // without splice(2), whose pipes are many descriptors
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// box is a sandbox's network namespace.
type box struct{ netbox.Box }

// newBox makes a namespace with its sockets, and the rules that lead the pool to
// them.
func newBox(t testing.TB) (box, netns.Sockets) {
	t.Helper()
	b := box{netbox.New(t)}
	var sockets netns.Sockets
	var err error
	b.Do(func() {
		var s netbox.Sockets
		if s, err = netbox.Open(); err == nil {
			sockets, err = asFiles(s)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, sockets
}

// deadSockets lead nowhere, in the namespace of the test.
func deadSockets() (netns.Sockets, error) {
	s, err := netbox.Listen(0)
	if err != nil {
		return netns.Sockets{}, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // on which nothing ever comes
	if err != nil {
		return netns.Sockets{}, err
	}
	s.DropLog = os.NewFile(uintptr(fd), "drop log")
	return asFiles(s)
}

// asFiles turns sockets into files.
func asFiles(s netbox.Sockets) (netns.Sockets, error) {
	files := netns.Sockets{DropLog: s.DropLog}
	var errs [6]error
	files.TCP, errs[0] = s.TCP.File()
	files.DNSPacket, errs[1] = s.DNS.File()
	files.DNSStream, errs[2] = s.DNSStream.File()
	errs[3], errs[4], errs[5] = s.TCP.Close(), s.DNS.Close(), s.DNSStream.Close()
	return files, errors.Join(errs[:]...)
}

// add makes a sandbox in a namespace of its own.
func (w *world) add(t testing.TB, s Sandbox) box {
	t.Helper()
	b, sockets := newBox(t)
	if err := w.Add(t.Context(), s, sockets); err != nil {
		t.Fatal(err)
	}
	return b
}

// lookup asks the sandbox's resolver, from inside.
func (b box) lookup(t testing.TB, name string) (addr netip.Addr, rcode int) {
	t.Helper()
	var err error
	b.Do(func() { addr, rcode, err = dnstest.Ask(name) })
	if err != nil {
		t.Fatalf("look up %s: %v", name, err)
	}
	return addr, rcode
}

// dial connects from inside.
func (b box) dial(addr netip.Addr, port uint16) (c net.Conn, err error) {
	b.Do(func() {
		// The dialer's own goroutines would run outside.
		fd, openErr := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err = openErr; err != nil {
			return
		}
		f := os.NewFile(uintptr(fd), "client")
		defer f.Close()
		if err = unix.Connect(fd, &unix.SockaddrInet4{Addr: addr.As4(), Port: int(port)}); err == nil {
			c, err = net.FileConn(f)
		}
	})
	return c, err
}

// echo sends a word and wants it back.
func echo(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	got := make([]byte, 5)
	_, err := io.ReadFull(c, got)
	return err
}

// reach looks name up, connects and has a word echoed.
func (w *world) reach(t testing.TB, b box, name string) (net.Conn, error) {
	t.Helper()
	addr, _ := b.lookup(t, name)
	if !addr.IsValid() {
		return nil, fmt.Errorf("%s has no address", name)
	}
	c, err := b.dial(addr, w.web.Port())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, echo(c)
}

// closed waits until the other side ended c, and says how long that took.
func closed(t testing.TB, c net.Conn) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := c.SetReadDeadline(begun.Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on: %v", err)
	}
	return time.Since(begun)
}

// until waits for something to come true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
		time.Sleep(5 * time.Millisecond) // for another process
	}
}

// swapped has its sockets in another order.
func swapped(s netns.Sockets) netns.Sockets {
	s.TCP, s.DNSPacket = s.DNSPacket, s.TCP
	return s
}
