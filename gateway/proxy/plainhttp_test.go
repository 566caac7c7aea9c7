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

	"github.com/caisson-run/caisson/gateway/usage"
)

// answerAll answers each request of a connection with 204.
func answerAll(c *net.TCPConn) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if _, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// Each request of a connection by plain HTTP is told of with what became of it, but for those that
// no server gets.
func TestPlainRequestsAreSeen(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	b := start(t, allow("a.test:80+8080"), answerAll, func(c *Config) {
		c.Requests = func(u usage.Use) {
			mu.Lock()
			defer mu.Unlock()
			if u.Sandbox != "box" || u.Rule != "allow a.test:80+8080" || u.Status != 204 || u.Code != "" || u.Begun.IsZero() || u.Duration <= 0 {
				t.Errorf("%+v", u)
			}
			seen = append(seen, fmt.Sprint(u.Method, " ", u.Name, u.Path, " ", u.Sent, u.Received, u.Skipped))
		}
	})
	c := b.dial("a.test", 80)
	for _, text := range []string{
		"GET /a%20b?secret=1 HTTP/1.1\r\nHost: a.test\r\n\r\n", "POST http://a.test/up HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi",
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET /no HTTP/1.1\r\nHost: b.test\r\n\r\n",
	} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := io.ReadAll(c); err != nil || strings.Count(string(text), " 204 ") != 3 || !strings.Contains(string(text), " 403 ") {
		t.Errorf("%q, %v", text, err)
	}
	other := b.dial("a.test", 8080) // not HTTP for all that is known
	_, _ = io.WriteString(other, "GET /other HTTP/1.1\r\nHost: a.test\r\n\r\n")
	_ = other.CloseWrite()
	_, _ = io.ReadAll(other)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"GET a.test/a b 0 0 0", "POST a.test/up 2 0 0", "GET a.test/ 0 0 0"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// Past so many, one record counts the others.
func TestPlainRequestsAreBounded(t *testing.T) {
	var mu sync.Mutex
	records, told := 0, uint64(0)
	b := start(t, allow("a.test"), answerAll, func(c *Config) {
		c.Requests = func(u usage.Use) {
			mu.Lock()
			defer mu.Unlock()
			records, told = records+1, told+1+u.Skipped
		}
	})
	c := b.dial("a.test", 80)
	const n = 3 * recordBurst
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", n))
		_ = c.CloseWrite()
	}()
	if text, err := io.ReadAll(c); err != nil || strings.Count(string(text), " 204 ") != n {
		t.Fatalf("%d answers, %v", strings.Count(string(text), " 204 "), err)
	}
	b.stop()
	if told != n || records >= 2*recordBurst {
		t.Errorf("%d records tell of %d requests, want %d", records, told, n)
	}
}
