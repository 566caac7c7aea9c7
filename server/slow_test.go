package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/slow"
)

// slowPatience is how long a condition may take on a loaded machine.
const slowPatience = time.Minute

// flood answers without end and says how that ended.
type flood struct {
	written atomic.Int64
	ended   chan error // of the write
	cause   chan error // of the call's context
}

func newFlood() *flood { return &flood{ended: make(chan error, 1), cause: make(chan error, 1)} }

// ServeHTTP implements http.Handler.
func (f *flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/short" {
		fmt.Fprint(w, "short")
		return
	}
	f.ended <- f.pour(w)
	<-r.Context().Done()
	f.cause <- context.Cause(r.Context())
}

func (f *flood) pour(w io.Writer) error {
	for buf := make([]byte, 100<<10); ; {
		n, err := w.Write(buf)
		f.written.Add(int64(n))
		if err != nil {
			return err
		}
	}
}

// stuck waits until nothing is written any more.
func (f *flood) stuck(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(slowPatience); ; {
		n := f.written.Load()
		time.Sleep(300 * time.Millisecond)
		if n > 0 && n == f.written.Load() {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the caller takes the whole flood")
		}
	}
}

// serveSlow serves h on a unix socket until the test ends, as the daemon does,
// but with other timeouts.
func serveSlow(t *testing.T, h http.Handler, stream, connection time.Duration) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := NewHTTP(slow.Bound(h, stream, func(r *http.Request) string { return r.URL.Path }))
	srv.HTTP2.WriteByteTimeout = connection
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// gate is a connection of which nothing is read while it is shut.
type gate struct {
	net.Conn
	shut   *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (g *gate) Read(p []byte) (int, error) {
	if g.shut.Load() {
		<-g.closed
		return 0, net.ErrClosed
	}
	return g.Conn.Read(p)
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// client2 speaks HTTP/2 to a socket, through a gate.
func client2(t *testing.T, socket string, shut *atomic.Bool) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		g := &gate{Conn: conn, shut: shut, closed: make(chan struct{})}
		t.Cleanup(func() { g.Close() })
		return g, nil
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func get(t *testing.T, c *http.Client, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func soon[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(slowPatience):
		t.Fatalf("no %s within %v", what, slowPatience)
	}
	panic("unreachable")
}

// stuckCallers are the ways not to read, and what must be well all the same.
var stuckCallers = []struct {
	name string
	call func(t *testing.T, socket string) (others func())
}{
	{"HTTP/1", func(t *testing.T, socket string) func() {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
		return func() {}
	}},
	{"one stream of HTTP/2", func(t *testing.T, socket string) func() {
		client := client2(t, socket, new(atomic.Bool))
		res := get(t, client, "/flood")
		t.Cleanup(func() { res.Body.Close() })
		return func() { // another stream of the connection
			other := get(t, client, "/short")
			defer other.Body.Close()
			if b, err := io.ReadAll(other.Body); err != nil || string(b) != "short" {
				t.Errorf("another stream: %q, %v", b, err)
			}
		}
	}},
	{"a connection of HTTP/2", func(t *testing.T, socket string) func() {
		var shut atomic.Bool
		res := get(t, client2(t, socket, &shut), "/flood")
		shut.Store(true)
		t.Cleanup(func() { res.Body.Close() })
		go func() { _, _ = io.Copy(io.Discard, res.Body) }() // the windows are wide open
		return func() {}
	}},
}

// A caller that does not read holds a call without the bound, and loses it
// with the bound.
func TestStuckCaller(t *testing.T) {
	for _, tt := range stuckCallers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			t.Run("unbounded", func(t *testing.T) {
				f := newFlood()
				others := tt.call(t, serveSlow(t, f, time.Hour, time.Hour))
				f.stuck(t)
				others()
				select {
				case err := <-f.ended:
					t.Errorf("the probe is not stuck: %v", err)
				default:
				}
			})
			t.Run("bounded", func(t *testing.T) {
				f := newFlood()
				others := tt.call(t, serveSlow(t, f, 300*time.Millisecond, 600*time.Millisecond))
				if err := soon(t, "end of the write", f.ended); !errors.Is(err, sbxerr.Canceled) {
					t.Errorf("the write ended with %v", err)
				}
				if err := soon(t, "end of the call", f.cause); !errors.Is(err, sbxerr.Canceled) {
					t.Errorf("the call ended with %v", err)
				}
				others()
			})
		})
	}
}

// A caller that reads slowly, but reads, gets all.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const size, timeout = 8 << 20, time.Second
	socket := serveSlow(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := w.Write(make([]byte, size)); n != size || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	}), timeout, timeout)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	const piece = 64 << 10
	for range size / piece {
		time.Sleep(5 * timeout / 4 / (size / piece))
		if _, err := io.CopyN(io.Discard, res.Body, piece); err != nil {
			t.Fatal(err)
		}
	}
}

// A response that cannot be bounded is not begun.
func TestUnboundableWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	h := slow.Bound(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }), 0, func(*http.Request) string { return "" })
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if rec.Code != http.StatusInternalServerError {
		t.Errorf("status %d", rec.Code)
	}
}

// A call that has nothing to write, and a connection that has no call, are
// not bounded.
func TestSilenceIsNotSlow(t *testing.T) {
	t.Parallel()
	const timeout = 600 * time.Millisecond
	socket := serveSlow(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "x")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		time.Sleep(timeout * 5 / 4)
		if err := context.Cause(r.Context()); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "x")
	}), timeout, timeout)
	var all sync.WaitGroup
	one := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer one.CloseIdleConnections()
	for _, client := range []*http.Client{client2(t, socket, new(atomic.Bool)), one} {
		all.Go(func() {
			for i := range 2 { // on one connection
				if i > 0 {
					time.Sleep(timeout * 5 / 4)
				}
				res, err := client.Post("http://x/", "", nil) // a GET would be tried again on a new connection
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(b) != "xx" {
					t.Errorf("got %q, %v", b, err)
				}
			}
		})
	}
	all.Wait()
}

// endless is a runtime whose commands write until nobody listens.
type endless struct {
	Sandboxes
	flood *flood
}

func (e endless) Run(ctx context.Context, _ plan.Request, rio runtime.IO) (*runtime.Result, error) {
	e.flood.ended <- e.flood.pour(rio.Stdout)
	<-ctx.Done()
	e.flood.cause <- context.Cause(ctx)
	return nil, context.Cause(ctx)
}

// A run waits for a caller that does not read, and ends when that hangs up.
func TestStuckRun(t *testing.T) {
	t.Parallel()
	f := newFlood()
	socket := serveSlow(t, New(Deps{Sandboxes: endless{flood: f}, WriteTimeout: 300 * time.Millisecond}), time.Hour, time.Hour)
	client := caissonv1connect.NewSandboxServiceClient(client2(t, socket, new(atomic.Bool)), "http://x")
	spec := &caissonv1.RunSpec{Sandbox: &caissonv1.SandboxSpec{}, Exec: &caissonv1.ExecSpec{Args: []string{"yes"}}}
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	stream, err := client.Run(ctx, connect.NewRequest(&caissonv1.RunRequest{Spec: spec}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	f.stuck(t)
	select {
	case err := <-f.ended:
		t.Fatalf("the output ended with %v", err)
	case <-time.After(900 * time.Millisecond): // three times what other calls have
	}
	hangUp()
	if err := soon(t, "end of the output", f.ended); !errors.Is(err, sbxerr.Canceled) {
		t.Errorf("the output ended with %v", err)
	}
	if err := soon(t, "end of the run", f.cause); !errors.Is(err, sbxerr.Canceled) && !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v", err)
	}
	for stream.Receive() { // the output that was on its way
	}
}
