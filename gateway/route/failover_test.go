package route_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// three is a route to three upstreams, the last of which is on the host of the second.
func three() policy.Route {
	return policy.Route{Upstream: "http://a.example.com/base", Fallbacks: []string{"http://b.example.com/b", "http://c.example.com:81"}, Credential: "key"}
}

// threeFixture leads each of them to a server; an empty one is not reached.
func threeFixture(t *testing.T, servers ...*upstream) *fixture {
	t.Helper()
	f := newFixture(t, servers[0].Server, three())
	f.dial = func(ctx context.Context, turn int) (net.Conn, error) {
		if servers[turn] == nil {
			return nil, sbxerr.New(sbxerr.EgressDial, "test", "nobody is there")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", servers[turn].Listener.Addr().String())
	}
	return f
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, text+" "+r.Method+" "+r.Host+r.URL.EscapedPath()+" "+string(body)+" "+r.Header.Get("Authorization"))
	}
}

func post(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+string(name)+"/v1/a%20b", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// The next upstream gets the whole request where one does not answer, by its own path.
func TestFailover(t *testing.T) {
	for code, asked := range map[int]int{http.StatusBadGateway: 1, http.StatusServiceUnavailable: 1, 529: 1, http.StatusTooManyRequests: 0, http.StatusInternalServerError: 0} {
		a, b, c := newUpstream(t, status(code)), newUpstream(t, says("b")), newUpstream(t, says("c"))
		f := threeFixture(t, a, b, c)
		res, body := f.do(t, post(t, strings.NewReader("hello")))
		if b.count() != asked || c.count() != 0 {
			t.Errorf("%d: the second was asked %d times, the third %d", code, b.count(), c.count())
		}
		if asked == 0 {
			if res.StatusCode != code {
				t.Errorf("%d: the client got %s", code, res.Status)
			}
			continue
		}
		if want := "b POST b.example.com/b/v1/a%20b hello Bearer " + stars; body != want {
			t.Errorf("%d: %q, want %q", code, body, want)
		}
		if u := f.use(t); u.Reason != "answered by b.example.com" || u.Status != http.StatusOK || u.Sent != 5 {
			t.Errorf("%+v", u)
		}
		if _, body := f.do(t, post(t, strings.NewReader("again"))); !strings.HasPrefix(body, "b POST") || a.count() != 1 {
			t.Errorf("%d: the next request: %q, and the first was asked %d times", code, body, a.count())
		}
	}
}

func TestFailoverOfConnections(t *testing.T) {
	c := newUpstream(t, says("c"))
	f := threeFixture(t, &upstream{Server: httptest.NewUnstartedServer(nil)}, nil, c)
	f.dial = func(ctx context.Context, turn int) (net.Conn, error) {
		if turn < 2 {
			return nil, sbxerr.New(sbxerr.EgressDial, "test", "nobody is there")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", c.Listener.Addr().String())
	}
	if _, body := f.do(t, post(t, strings.NewReader("hello"))); body != "c POST c.example.com:81/v1/a%20b hello Bearer "+stars {
		t.Errorf("%q", body)
	}
	f.dial = func(context.Context, int) (net.Conn, error) {
		return nil, sbxerr.New(sbxerr.EgressDial, "test", "nobody is there")
	}
	f.server.Close()
	g := threeFixture(t, c, nil, nil)
	g.dial = f.dial
	if res, body := g.get(t, "/v1"); res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "SBX-705") {
		t.Errorf("without any: %s %q", res.Status, body)
	}
}

// A request is not sent again if it may have arrived and could do harm, or if its body was not kept.
func TestFailoverOnlyOnce(t *testing.T) {
	breaks := func(w http.ResponseWriter, r *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		_ = c.Close()
	}
	for _, tt := range []struct {
		what    string
		first   http.HandlerFunc
		request func() *http.Request
		asked   int // times that the second is
	}{
		{"a POST that broke off", breaks, func() *http.Request { return post(t, strings.NewReader("x")) }, 0},
		{"a GET that broke off", breaks, func() *http.Request {
			r := post(t, nil)
			r.Method = http.MethodGet
			return r
		}, 1},
		{"a body of unknown length", status(503), func() *http.Request { return post(t, io.MultiReader(strings.NewReader("x"))) }, 0},
		{"a long body", status(503), func() *http.Request { return post(t, strings.NewReader(strings.Repeat("x", 4<<20+1))) }, 0},
		{"a body that is kept", status(503), func() *http.Request { return post(t, strings.NewReader(strings.Repeat("x", 4<<20))) }, 1},
	} {
		b := newUpstream(t, says("b"))
		f := threeFixture(t, newUpstream(t, tt.first), b, nil)
		f.do(t, tt.request())
		if b.count() != tt.asked {
			t.Errorf("%s: the second upstream was asked %d times, want %d", tt.what, b.count(), tt.asked)
		}
	}
}

// A redirect below any of the upstreams leads to the route.
func TestFailoverRedirects(t *testing.T) {
	b := newUpstream(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/b/next", http.StatusFound) })
	f := threeFixture(t, newUpstream(t, status(503)), b, nil)
	if res, _ := f.get(t, "/here"); res.Header.Get("Location") != "http://"+string(name)+"/next" {
		t.Errorf("it leads to %q", res.Header.Get("Location"))
	}
}

// A request is counted once, however often it is sent.
func TestFailoverIsOneRequest(t *testing.T) {
	var n atomic.Int64
	f := threeFixture(t, newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(529)
	}), newUpstream(t, ok), nil)
	f.get(t, "/x")
	f.use(t)
	select {
	case u := <-f.uses:
		t.Errorf("a second record: %+v", u)
	default:
	}
	if n.Load() != 1 {
		t.Errorf("the first was asked %d times", n.Load())
	}
}
