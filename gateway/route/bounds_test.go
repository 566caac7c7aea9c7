package route_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route"
)

// What requests of one sandbox hold is bounded, whatever the number of its connections.
func TestHeldBodies(t *testing.T) {
	up := newUpstream(t, ok)
	r := plainRoute()
	r.Tokens, r.Models = true, map[string]policy.Model{"m": {Upstream: "http://m.example.com"}}
	for _, tt := range []struct {
		what   string
		limits route.Limits
		length string // of the first body
		says   string
	}{
		{"requests at once", route.Limits{PerSecond: 1e6, Burst: 1e6, AtOnce: 1, Held: 1 << 30}, "Content-Length: 5", "more than 1 requests are under way"},
		{"a body of unknown length", route.Limits{PerSecond: 1e6, Burst: 1e6, AtOnce: 10, Held: 4<<20 + 1}, "Transfer-Encoding: chunked", "too long together"},
		{"a body of known length", route.Limits{PerSecond: 1e6, Burst: 1e6, AtOnce: 10, Held: 1000}, "Content-Length: 999", "too long together"},
	} {
		f := newFixtureWith(t, up.Server, r, tt.limits)
		var first net.Conn
		var since time.Time
		hold := func() {
			var err error
			since = time.Now()
			if first, err = net.Dial("tcp", f.address); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(first, "POST /x HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", name, tt.length); err != nil {
				t.Fatal(err)
			}
		}
		hold()
		c := f.client(t)
		other := func() (int, string) {
			res, err := c.Post("http://"+string(name)+"/x", "application/json", strings.NewReader(`{"model": 5}`))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode, string(text)
		}
		var status int
		var text string
		until := func(done func() bool) { // the first one comes, and goes, when it likes
			for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && !done(); time.Sleep(time.Millisecond) {
				status, text = other()
			}
		}
		until(func() bool {
			if time.Since(since) > time.Second { // it was refused: another one was there before it
				_ = first.Close()
				hold()
			}
			return status != 0 && status != http.StatusOK
		})
		if status != http.StatusTooManyRequests || !strings.Contains(text, tt.says) || !strings.HasPrefix(text, string(sbxerr.EgressBusy)) {
			t.Errorf("%s: %d, %q", tt.what, status, text)
		}
		_ = first.Close()
		until(func() bool { return status == http.StatusOK })
		if status != http.StatusOK {
			t.Errorf("%s, afterwards: %d, %q", tt.what, status, text)
		}
	}
}
