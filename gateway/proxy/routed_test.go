package proxy

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// oneUpstream serves each client of a route by one connection to its upstream.
type oneUpstream struct{ bench *bench }

func (u *oneUpstream) Serve(c net.Conn, at policy.Place) {
	go func() {
		defer c.Close()
		up, err := u.bench.DialUpstream(context.Background(), at.Route, 0)
		if err != nil {
			_, _ = io.Copy(io.Discard, c) // a close with unread bytes resets the connection (RFC 9293, 3.10.4)
			_, _ = io.WriteString(c, string(sbxerr.Of(err)))
			return
		}
		defer up.Close()
		go func() {
			_, _ = io.Copy(up, c)
			_ = up.(interface{ CloseWrite() error }).CloseWrite()
		}()
		_, _ = io.Copy(c, up)
	}()
}

func routedTo(upstream string, private bool) policy.Spec {
	return policy.Spec{Mode: policy.Allow, Routes: map[string]policy.Route{"up": {Upstream: upstream, Private: private}}}
}

func startRouted(t *testing.T, spec policy.Spec) *bench {
	u := &oneUpstream{}
	u.bench = start(t, spec, echo, func(c *Config) { c.Routes = u })
	return u.bench
}

const upName = "up.caisson.internal"

// A client of a route is led to its upstream, which the sandbox cannot reach itself.
func TestRouted(t *testing.T) {
	spec := routedTo("https://a.test:8443", false)
	spec.Map = map[string]string{"m.test": "10.0.0.1:8080"}
	spec.Routes["mapped"] = policy.Route{Upstream: "http://m.test"}
	spec.Routes["address"] = policy.Route{Upstream: "http://9.9.9.7:81"}
	b := startRouted(t, spec)
	for host, address := range map[string]string{upName: "9.9.9.9:8443", "mapped.caisson.internal": "10.0.0.1:8080", "address.caisson.internal": "9.9.9.7:81"} {
		if got, err := talk(b.dial(host, 80), "hello"); got != "hello" || err != nil {
			t.Errorf("%s: %q, %v", host, got, err)
		}
		label, _, _ := strings.Cut(host, ".")
		if a := b.record(); a.Verdict != attempt.Allowed || a.Rule != "route "+label || a.Address.String() != address || a.Sent != 5 || a.Received != 5 {
			t.Errorf("%s: %+v", host, a)
		}
	}
	for _, tc := range []struct {
		host string
		port uint16
	}{{"a.test", 8443}, {upName, 443}, {upName, 8443}, {"other.caisson.internal", 80}, {"x." + upName, 80}} {
		c := b.dial(tc.host, tc.port)
		if tc.port != 8443 { // where a client that says nothing is waited for
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+tc.host+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := io.ReadAll(c); err == nil && len(got) == 0 || strings.Contains(string(got), "hello") {
			t.Errorf("%s:%d: %q, %v", tc.host, tc.port, got, err)
		}
		if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied {
			t.Errorf("%s: %+v", tc.host, a)
		}
	}
}

// Where an upstream leads, the rules about addresses hold.
func TestRoutedAddress(t *testing.T) {
	for _, tc := range []struct {
		private bool
		address string
		deny    string
		want    string
	}{
		{false, "10.0.0.1", "", string(sbxerr.EgressAddress)}, {true, "10.0.0.1", "", "hello"}, {true, "169.254.169.254", "", string(sbxerr.EgressAddress)},
		{false, "9.9.9.9", "", "hello"}, {false, "9.9.9.9", "a.test", string(sbxerr.EgressDenied)}, {false, "9.9.9.9", "9.9.9.0/24", string(sbxerr.EgressDenied)},
	} {
		spec := routedTo("http://a.test", tc.private)
		if tc.deny != "" {
			spec.Deny = []string{tc.deny}
		}
		b := startRouted(t, spec)
		b.resolver.set("a.test", tc.address)
		if got, err := talk(b.dial(upName, 80), "hello"); got != tc.want || err != nil {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
		if a := b.record(); a.Rule != "route up" || (a.Verdict == attempt.Allowed) != (tc.want == "hello") {
			t.Errorf("%+v: %+v", tc, a)
		}
	}
}

// A change of the policy that takes a route away, or leads it elsewhere, cuts what it carries.
func TestRoutedCut(t *testing.T) {
	for what, next := range map[string]policy.Spec{
		"taken away": {Mode: policy.Allow}, "led elsewhere": routedTo("http://b.test", false), "denied": {Mode: policy.Allow, Deny: []string{"a.test"}, Routes: routedTo("http://a.test", false).Routes},
	} {
		b := startRouted(t, routedTo("http://a.test", false))
		c := b.dial(upName, 80)
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("%s: the control: %v", what, err)
		}
		b.SetPolicy(compile(t, next))
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if got, err := io.ReadAll(c); len(got) > 0 || isTimeout(err) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if a := b.record(); a.Verdict != attempt.Cut || a.Code != sbxerr.EgressDenied {
			t.Errorf("%s: %+v", what, a)
		}
		b.stop()
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// The end of a sandbox ends connections to upstreams, and each has its record by then.
func TestRoutedEnd(t *testing.T) {
	b := startRouted(t, routedTo("http://a.test", false))
	c := b.dial(upName, 80)
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	for range 2 {
		select {
		case a := <-b.records:
			if a.Verdict != attempt.Stopped {
				t.Errorf("%+v", a)
			}
		default:
			t.Error("a record is missing")
		}
	}
	if _, err := b.DialUpstream(t.Context(), upName, 0); sbxerr.Of(err) != sbxerr.Canceled {
		t.Errorf("afterwards: %v", err)
	}
}

// Each upstream of a route is reached in its turn, and a change that takes it away cuts it.
func TestRoutedTurns(t *testing.T) {
	spec := routedTo("http://a.test", false)
	spec.Routes["up"] = policy.Route{Upstream: "http://a.test", Fallbacks: []string{"http://9.9.9.7:81"}}
	b := startRouted(t, spec)
	c, err := b.DialUpstream(t.Context(), upName, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DialUpstream(t.Context(), upName, 2); sbxerr.Of(err) != sbxerr.EgressDenied {
		t.Errorf("past the last: %v", err)
	}
	b.SetPolicy(compile(t, routedTo("http://a.test", false)))
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := io.ReadAll(c); len(got) > 0 || isTimeout(err) {
		t.Errorf("%q, %v", got, err)
	}
	_ = c.Close()
	if a := b.record(); a.Verdict != attempt.Cut || a.Address.String() != "9.9.9.7:81" {
		t.Errorf("%+v", a)
	}
}
