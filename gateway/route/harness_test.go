package route_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/secret"
	"github.com/caisson-run/caisson/gateway/usage"
)

const (
	key   = "sk-live-0123456789abcdef"
	stars = "************************"
	name  = policy.Name("up.caisson.internal")
)

// fixture is a route of a sandbox, with an upstream that the test serves.
type fixture struct {
	server  *route.Server
	secrets *secret.Store
	address string        // where clients connect
	at      *policy.Place // that they take it for; nil: the name of the route

	mu     sync.Mutex
	routed *policy.Routed
	uses   chan usage.Use
	dials  int
	dial   func(ctx context.Context, turn int) (net.Conn, error) // nil leads to the one upstream
}

// routed compiles a route. Its upstream has a name, which leads to address.
func compiled(t testing.TB, r policy.Route) *policy.Routed {
	t.Helper()
	p, err := policy.Compile(policy.Spec{Mode: policy.Allow, Routes: map[string]policy.Route{"up": r}})
	if err != nil {
		t.Fatal(err)
	}
	routed, ok := p.Routed(name)
	if !ok {
		t.Fatal("no route")
	}
	return routed
}

func newFixture(t testing.TB, upstream *httptest.Server, r policy.Route) *fixture {
	t.Helper()
	return newFixtureWith(t, upstream, r, route.Limits{PerSecond: 1e6, Burst: 1e6, AtOnce: 1e6, Held: 1 << 40})
}

func newFixtureWith(t testing.TB, upstream *httptest.Server, r policy.Route, limits route.Limits) *fixture {
	t.Helper()
	secrets, err := secret.NewStore()
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Set(map[string]io.Reader{"key": strings.NewReader(key)}); err != nil {
		t.Fatal(err)
	}
	f := &fixture{secrets: secrets, routed: compiled(t, r), uses: make(chan usage.Use, 1<<16)}
	to := strings.TrimPrefix(strings.TrimPrefix(upstream.URL, "http://"), "https://")
	f.server = route.New(route.Config{
		Sandbox: "box", Secrets: secrets, Limits: limits,
		Route: func(n policy.Name) (*policy.Routed, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.routed, n == name && f.routed != nil
		},
		Dial: func(ctx context.Context, n policy.Name, turn int) (net.Conn, error) {
			f.mu.Lock()
			f.dials++
			f.mu.Unlock()
			if n != name {
				return nil, sbxerr.New(sbxerr.Internal, "test", "the route %s is dialled", n)
			}
			if f.dial != nil {
				return f.dial(ctx, turn)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		},
		Ledger: new(budget.Ledger), Bill: func() budget.Bill { return budget.Bill{Sandbox: "box"} },
		Record: func(u usage.Use) { f.uses <- u },
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.server.Serve(c, f.place())
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		f.server.Close()
	})
	return f
}

// dialled is how many connections to upstreams there were.
func (f *fixture) dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// place is where clients connect to.
func (f *fixture) place() policy.Place {
	if f.at != nil {
		return *f.at
	}
	return policy.Place{Route: name, Host: name, Port: policy.RoutePort}
}

// client is an ordinary client inside.
func (f *fixture) client(t testing.TB) *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", f.address)
		},
		DisableCompression: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get asks for a path.
func (f *fixture) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+string(name)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f.do(t, req)
}

func (f *fixture) do(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := f.client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// raw sends text and returns the answer's first bytes up to the end of the connection, or
// what has come when the time is up.
func (f *fixture) raw(t *testing.T, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	b, _ := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s", res.StatusCode, b)
}

func (f *fixture) use(t *testing.T) usage.Use {
	t.Helper()
	select {
	case u := <-f.uses:
		return u
	case <-time.After(10 * time.Second):
		t.Fatal("no record")
	}
	return usage.Use{}
}

// upstream serves h and keeps what it was asked.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func newUpstream(t *testing.T, h http.HandlerFunc) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(u.keep(h))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) keep(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.seen = append(u.seen, r.Clone(context.Background()))
		u.mu.Unlock()
		h(w, r)
	})
}

// last is the last request that came.
func (u *upstream) last(t *testing.T) *http.Request {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.seen) == 0 {
		t.Fatal("the upstream was not asked")
	}
	return u.seen[len(u.seen)-1]
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }

// plainRoute leads to an upstream by its name, with the credential as bearer.
func plainRoute() policy.Route {
	return policy.Route{Upstream: "http://up.example.com/base", Credential: "key"}
}
