package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

// Of a host with a rule for methods and paths, no other request gets to the server, and no other
// protocol.
func TestScopedRequests(t *testing.T) {
	told := make(chan heard, 1)
	b := start(t, allow("GET,POST a.test/v1/*", "b.test:80"), listener(told), nil)
	const ok = "GET /v1/x?q HTTP/1.1\r\nHost: a.test\r\n\r\n"
	for name, tc := range map[string]struct{ bad, says string }{
		"a method":   {"PUT /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "allow it with --allow 'PUT a.test/v1/x'"},
		"a path":     {"GET /v2/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test:80/v2/x is allowed by no rule"},
		"dots":       {"GET /v1/../v2 HTTP/1.1\r\nHost: a.test\r\n\r\n", "one or two dots"},
		"encoded":    {"GET /v1/%2e%2e HTTP/1.1\r\nHost: a.test\r\n\r\n", "one or two dots"},
		"slashes":    {"GET //v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "empty segment"},
		"a fragment": {"GET /v1/x#/y HTTP/1.1\r\nHost: a.test\r\n\r\n", "has a"},
		"absolute":   {"GET http://a.test/v2/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "allowed by no rule"},
		"no path":    {"GET http://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n", "allowed by no rule"},
		"asterisk":   {"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", "plain form"},
		"CONNECT":    {"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n", "allowed by no rule"},
	} {
		for _, before := range []string{"", ok} {
			c := b.dial("a.test", 80)
			text, err := talk(c, before+tc.bad+ok)
			if err != nil || strings.Count(text, "204") != len(before)/len(ok) || !strings.Contains(text, "403") || !strings.Contains(text, string(sbxerr.EgressDenied)) || !strings.Contains(text, tc.says) {
				t.Errorf("%s after %q: %q, %v", name, before, text, err)
			}
			if got := <-told; got.text != before {
				t.Errorf("%s: the server heard %q", name, got.text)
			}
			if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied || a.Rule == ruleMismatch {
				t.Errorf("%s: %+v", name, a)
			}
			b.record()
		}
	}
	if text, err := talk(b.dial("a.test", 80), "GET http://a.test/v1/x HTTP/1.1\r\nHost: a.test\r\n\r\nPOST /v1/y HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"); err != nil || strings.Count(text, "204") != 2 {
		t.Errorf("%q, %v", text, err)
	}
	if got := <-told; got.text != "GET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\nPOST /v1/y HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n" {
		t.Errorf("the server heard %q", got.text)
	}
	b.record()
	if _, err := talk(b.dial("a.test", 443), string(hello(t, "a.test", nil))); err == nil {
		b.record()
	}
	if dialed := b.dialer.all(); strings.Contains(strings.Join(dialed, " "), ":443") {
		t.Errorf("dialled %q", dialed)
	}
}

// A change to a rule with a scope cuts what it would not allow: a request that is under way, and a
// connection that nobody reads any more.
func TestChangeToAScope(t *testing.T) {
	for name, tc := range map[string]struct {
		ask, rule string
		cut       bool
	}{
		"a request that is allowed":     {"GET /wait HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test/*", false},
		"a request that is not":         {"GET /wait HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test/other", true},
		"a socket, by the same request": {"GET /socket HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n", "GET a.test/*", true},
		"a socket, all methods":         {"GET /socket HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n", "a.test:80", false},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			b := start(t, allow("a.test"), func(c *net.TCPConn) {
				buf := make([]byte, 1024)
				n, _ := c.Read(buf)
				if strings.Contains(string(buf[:n]), "/socket") {
					fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				} else {
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
				}
				close(begun)
				_, _ = io.Copy(io.Discard, c)
			}, nil)
			c := b.dial("a.test", 80)
			fmt.Fprint(c, tc.ask)
			<-begun
			if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200"))); err != nil {
				t.Fatal(err)
			}
			b.SetPolicy(compile(t, allow(tc.rule)))
			_ = c.CloseWrite()
			_, err := io.ReadAll(c)
			if (err != nil) != tc.cut {
				t.Errorf("%v", err)
			}
			if a := b.record(); (a.Verdict == attempt.Cut) != tc.cut {
				t.Errorf("%+v", a)
			}
		})
	}
}
