package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/upstream"
)

// The proxy of these tests has a name; its address is private, as they are.
const proxyAddress = "10.0.0.3:3128"

func via(t testing.TB, except ...string) *upstream.Proxy {
	t.Helper()
	u, err := upstream.Compile(upstream.Spec{URL: "http://proxy.corp:3128", Except: except, Credentials: upstream.NewSecret("agent:s3cret")})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// connecting is a proxy and all that lies behind it: a server that repeats what it hears.
type connecting struct {
	mu     sync.Mutex
	asked  []string
	answer string // and whatever the destination says at once
}

func (p *connecting) serve(c *net.TCPConn) {
	reader := bufio.NewReader(c)
	request, err := http.ReadRequest(reader)
	if err != nil { // a connection that was not made through it
		return
	}
	p.mu.Lock()
	user, password, _ := (&http.Request{Header: http.Header{"Authorization": request.Header["Proxy-Authorization"]}}).BasicAuth()
	p.asked = append(p.asked, fmt.Sprintf("%s %s as %s/%s", request.Method, request.RequestURI, user, password))
	answer := p.answer
	p.mu.Unlock()
	_, _ = io.WriteString(c, answer)
	_, _ = io.Copy(c, reader)
}

func (p *connecting) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func startThrough(t testing.TB, spec policy.Spec, answer string, change func(*Config)) (*bench, *connecting) {
	t.Helper()
	p := &connecting{answer: answer}
	b := start(t, spec, p.serve, func(c *Config) {
		c.Upstream = via(t, "intern.example.com", "9.9.9.128/25")
		if change != nil {
			change(c)
		}
	})
	b.resolver.set("proxy.corp", "10.0.0.3")
	return b, p
}

const good = "HTTP/1.1 200 Connection established\r\n\r\n"

var outward = allow("a.example.com:22", "inner.example.com:22,private", "intern.example.com:22", "db.corp:22,private", "9.9.9.0/24:22", "10.0.0.0/8:22,private")

// Names and addresses that are public leave through the proxy, and nobody resolves them.
func TestThrough(t *testing.T) {
	b, p := startThrough(t, outward, good+"banner ", nil)
	for host, asked := range map[string]string{"a.example.com": "CONNECT a.example.com:22 as agent/s3cret", "9.9.9.7": "CONNECT 9.9.9.7:22 as agent/s3cret"} {
		got, err := talk(b.dial(host, 22), "hello")
		if got != "banner hello" || err != nil {
			t.Errorf("%s: %q, %v", host, got, err)
		}
		a := b.record()
		if a.Verdict != attempt.Allowed || !a.Proxied || a.Address.String() != proxyAddress || a.Sent != 5 || a.Received != 12 || a.Code != "" || a.Reason != byProxy {
			t.Errorf("%s: %+v", host, a)
		}
		if strings.Contains(fmt.Sprintf("%+v", a), "s3cret") {
			t.Errorf("%s: its record holds the credentials: %+v", host, a)
		}
		if got := p.take(); !slices.Equal(got, []string{asked}) {
			t.Errorf("%s: it was asked %q", host, got)
		}
	}
	if dialed := b.dialer.all(); !slices.Equal(dialed, []string{proxyAddress, proxyAddress}) {
		t.Errorf("dialled %q", dialed)
	}
	if !slices.Equal(b.resolver.asked, []policy.Name{"proxy.corp", "proxy.corp"}) {
		t.Errorf("resolved %q", b.resolver.asked)
	}
}

// What stays inside is dialled here, and what is public is not, whichever name leads to it.
func TestNotThrough(t *testing.T) {
	spec := outward
	spec.Allow = append(slices.Clone(spec.Allow), "mapped.example.com:22")
	spec.Map = map[string]string{"mapped.example.com": "9.9.9.1"}
	b, _ := startThrough(t, spec, good, nil)
	b.resolver.set("inner.example.com", "10.0.0.7")
	b.resolver.set("db.corp", "10.0.0.8")
	b.resolver.set("intern.example.com", "9.9.9.5")
	for host, address := range map[string]string{
		"inner.example.com": "10.0.0.7:22", "db.corp": "10.0.0.8:22", "intern.example.com": "9.9.9.5:22", "mapped.example.com": "9.9.9.1:22",
		"10.1.2.3": "10.1.2.3:22", "9.9.9.200": "9.9.9.200:22",
	} {
		_ = b.dial(host, 22).Close()
		if a := b.record(); a.Proxied || a.Mapped != (host == "mapped.example.com") || a.Address.String() != address || a.Verdict != attempt.Allowed {
			t.Errorf("%s: %+v", host, a)
		}
	}
	b.resolver.set("inner.example.com", "8.8.8.8")
	b.resolver.set("db.corp", "8.8.8.8", "10.0.0.8")
	before := len(b.dialer.all())
	_, _ = io.ReadAll(b.dial("inner.example.com", 22))
	if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied || !strings.Contains(a.Reason, "through the upstream proxy alone") {
		t.Errorf("%+v", a)
	}
	_ = b.dial("db.corp", 22).Close()
	if a, dialed := b.record(), b.dialer.all()[before:]; a.Address.String() != "10.0.0.8:22" || !slices.Equal(dialed, []string{"10.0.0.8:22"}) {
		t.Errorf("%+v, dialled %q", a, dialed)
	}
}

// Without its proxy nothing public is reached: there is no other way.
func TestThroughFailsClosed(t *testing.T) {
	t.Parallel()
	b, p := startThrough(t, outward, good, func(c *Config) { c.Limits.Resolve, c.Limits.Connect = time.Second/4, time.Second/4 })
	b.resolver.set("a.example.com", "9.9.9.9") // which nobody should ask for
	for _, tc := range []struct {
		name   string
		change func()
		want   string
	}{
		{"refuses the connection", func() { b.dialer.dead = []string{proxyAddress} }, "failed a.example.com invalid AddrPort allow a.example.com:22 SBX-709"},
		{"refuses the destination", func() { b.dialer.dead, p.answer = nil, "HTTP/1.1 403 Forbidden\r\n\r\n" }, "failed a.example.com " + proxyAddress + " allow a.example.com:22 SBX-708"},
		{"never answers", func() { p.answer = "" }, "failed a.example.com " + proxyAddress + " allow a.example.com:22 SBX-709"},
		{"has no address", func() { b.resolver.set("proxy.corp") }, "failed a.example.com invalid AddrPort allow a.example.com:22 SBX-709"},
	} {
		b.dialer.mu.Lock()
		p.mu.Lock()
		tc.change()
		p.mu.Unlock()
		b.dialer.mu.Unlock()
		if got, err := io.ReadAll(b.dial("a.example.com", 22)); err == nil || len(got) > 0 {
			t.Errorf("%s: %q, %v; want a reset", tc.name, got, err)
		}
		if a := b.record(); summary(a) != tc.want || a.Reason == "" || !a.Proxied {
			t.Errorf("%s: %s (%s), want %s", tc.name, summary(a), a.Reason, tc.want)
		}
	}
	for _, address := range b.dialer.all() {
		if address != proxyAddress {
			t.Errorf("dialled %s", address)
		}
	}
}

// What the client may read of it tells what to do, and nothing of the proxy.
func TestThroughIsReadable(t *testing.T) {
	t.Parallel()
	b, p := startThrough(t, allow("a.example.com"), "HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=s3cret\r\n\r\n", nil)
	ask := func() string {
		c := b.dial("a.example.com", 80)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
		said, _ := io.ReadAll(c)
		b.record()
		return string(said)
	}
	refused := ask()
	if !strings.HasPrefix(refused, "HTTP/1.1 502 ") || !strings.Contains(refused, "SBX-708") || !strings.Contains(refused, "407 Proxy Authentication Required") {
		t.Errorf("%q", refused)
	}
	p.mu.Lock()
	p.answer = "220 smtp.example\r\n"
	p.mu.Unlock()
	broken := ask()
	if !strings.HasPrefix(broken, "HTTP/1.1 502 ") || !strings.Contains(broken, "SBX-709") {
		t.Errorf("%q", broken)
	}
	for _, text := range []string{"s3cret", "proxy.corp", "10.0.0.3", "smtp"} {
		if strings.Contains(refused+broken, text) {
			t.Errorf("it says %q", text)
		}
	}
}

// A connection goes on for as long as its name is allowed and leaves by the same way.
func TestThroughIsCut(t *testing.T) {
	for name, tc := range map[string]struct {
		next policy.Spec
		rule string // that cuts it; empty: none
	}{
		"another rule allows it":   {allow("*.example.com:22"), ""},
		"no rule allows it":        {allow("b.example.com:22"), "mode allow"},
		"its rule becomes private": {allow("a.example.com:22,private"), "change of what leaves through the upstream proxy"},
		"it is mapped":             {policy.Spec{Mode: policy.Allow, Allow: []string{"a.example.com:22"}, Map: map[string]string{"a.example.com": "10.0.0.9"}}, "change of what leaves through the upstream proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := startThrough(t, allow("a.example.com:22"), good+"x", nil)
			c := b.dial("a.example.com", 22)
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			b.SetPolicy(compile(t, tc.next))
			if _, err := talk(c, "y"); (err != nil) != (tc.rule != "") {
				t.Errorf("%v", err)
			}
			if a := b.record(); (a.Verdict == attempt.Cut) != (tc.rule != "") || a.Verdict == attempt.Cut && a.Rule != tc.rule {
				t.Errorf("%+v", a)
			}
		})
	}
}
