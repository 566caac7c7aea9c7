package route_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/route"
)

// dump is all that comes for text.
func dump(t *testing.T, f *fixture, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%v after %q", err, b)
	}
	return string(b)
}

// Answers 1xx without end are cut off.
func TestEndlessInformation(t *testing.T) {
	over := make(chan int, 1)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for ; n < 1_000_000 && r.Context().Err() == nil; n++ {
			w.Header().Set("X-N", fmt.Sprint(n))
			w.WriteHeader(http.StatusEarlyHints)
		}
		over <- n
	})
	f := newFixture(t, up.Server, plainRoute())
	answer := dump(t, f, "GET / HTTP/1.1\r\nHost: up.caisson.internal\r\nConnection: close\r\n\r\n")
	if n := strings.Count(answer, "HTTP/1.1 103 "); n != 16 || !strings.Contains(answer, "HTTP/1.1 502 ") || !strings.Contains(answer, string(sbxerr.EgressRoute)) {
		t.Errorf("%d answers, and %.200q at the end", n, answer[max(0, len(answer)-300):])
	}
	select {
	case n := <-over:
		if n == 1_000_000 {
			t.Error("the upstream was not cut")
		}
	case <-time.After(10 * time.Second):
		t.Error("the upstream still sends")
	}
}

// echoTunnel switches to any protocol and sends back what it gets.
func echoTunnel(w http.ResponseWriter, r *http.Request) {
	to := r.Header.Get("Upgrade")
	if r.URL.Path == "/base/unasked" {
		to = "weird/1"
	}
	if to == "" {
		_, _ = io.WriteString(w, "no upgrade")
		return
	}
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\nX-Echo: %s\r\n\r\n%s\n", to, r.Header.Get("Authorization"), r.Header.Get("Authorization"))
	_ = rw.Flush()
	_, _ = io.Copy(c, rw)
}

// Only a WebSocket is a tunnel. It is masked, and no side of it waits for more than was sent.
func TestTunnels(t *testing.T) {
	up := newUpstream(t, echoTunnel)
	f := newFixture(t, up.Server, plainRoute())
	for _, head := range []string{
		"GET / HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "GET / HTTP/1.1\r\nUpgrade: weird/1", "POST / HTTP/1.1\r\nUpgrade: websocket",
		"GET / HTTP/1.1\r\nUpgrade: websocket, h2c", "GET / HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: h2c",
	} {
		got := f.raw(t, head+"\r\nConnection: Upgrade, close\r\nHost: up.caisson.internal\r\n\r\n")
		if got != "200 no upgrade" || up.last(t).Header.Get("Upgrade") != "" || up.last(t).Header.Get("Http2-Settings") != "" {
			t.Errorf("%q: %q with %v", head, got, up.last(t).Header)
		}
	}
	if got := f.raw(t, "GET /unasked HTTP/1.1\r\nHost: up.caisson.internal\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "502 ") {
		t.Errorf("a tunnel that nobody asked for: %q", got)
	}

	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: up.caisson.internal\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("X-Echo") != "Bearer "+stars {
		t.Fatalf("%v, %v", res, err)
	}
	if got := up.last(t).Header; got.Get("Sec-Websocket-Extensions") != "" || got.Get("Authorization") != "Bearer "+key {
		t.Errorf("%v", got)
	}
	for _, say := range []string{"", "hello\n", key + "\n", "ends in " + key[:7]} {
		want := strings.ReplaceAll(say, key, stars)
		if say == "" {
			want = "Bearer " + stars + "\n"
		}
		_, _ = io.WriteString(c, say)
		b := make([]byte, len(want))
		if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
			t.Fatalf("%q: %q, %v", say, b, err)
		}
	}
	_ = c.Close()
	for {
		if u := f.use(t); u.Path == "/ws" {
			if u.Status != 101 || u.Sent == 0 || u.Received == 0 {
				t.Errorf("%+v", u)
			}
			return
		}
	}
}

// A refusal gets to a client that waits to be told that it may send its body.
func TestRefusalBeforeBody(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
	f := newFixture(t, up.Server, plainRoute())
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	begun := time.Now()
	_ = c.SetDeadline(begun.Add(10 * time.Second))
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: up.caisson.internal\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err == nil && res.StatusCode == 100 {
		res, err = http.ReadResponse(r, nil)
	}
	if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("%v, %v after %v", res, err, time.Since(begun))
	}
}

// What an upstream that talks no HTTP says is no answer, and not repeated.
func TestBrokenUpstream(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "nonsense "+r.Header.Get("Authorization")+"\r\n\r\n")
		_ = c.Close()
	})
	f := newFixture(t, up.Server, plainRoute())
	res, text := f.get(t, "/")
	if res.StatusCode != 502 || !strings.HasPrefix(text, string(sbxerr.EgressDial)) || strings.Contains(text, key) {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if u := f.use(t); u.Code != sbxerr.EgressDial || strings.Contains(u.Reason, key) || u.Status != 502 {
		t.Errorf("%+v", u)
	}
}

// An answer that breaks off in the middle does not end as if it were whole.
func TestBreaksOff(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, strings.Repeat("x", 500))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	f := newFixture(t, up.Server, plainRoute())
	res, err := f.client(t).Get("http://" + string(name) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil || len(b) != 500 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Requests past the limit are refused, and one record counts them.
func TestTooManyRequests(t *testing.T) {
	up := newUpstream(t, ok)
	f := newFixtureWith(t, up.Server, plainRoute(), route.Limits{PerSecond: 1, Burst: 20, AtOnce: 100, Held: 1 << 20})
	const most = 500
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		for range most {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: up.caisson.internal\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	answers, in := map[int]uint64{}, bufio.NewReader(c)
	for range most {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		answers[res.StatusCode]++
	}
	f.server.Close()
	records := map[int]uint64{}
	for len(f.uses) > 0 {
		u := <-f.uses
		records[u.Status]++
		records[429] += u.Skipped
	}
	if answers[200] < 20 || answers[429] == 0 || answers[200] != records[200] || answers[429] != records[429] {
		t.Errorf("answered %v, recorded %v", answers, records)
	}
}
