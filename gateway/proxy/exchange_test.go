package proxy

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

// site answers each request of a connection with its host and path, and the sum of its
// body. It takes any host, as a server of many does.
func site(c *net.TCPConn) {
	reader := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(reader)
		if err != nil {
			_ = c.CloseWrite()
			return
		}
		if r.Header.Get("Upgrade") == "websocket" && r.URL.Path == "/socket" {
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(c, reader)
			_ = c.CloseWrite()
			return
		}
		if r.Header.Get("Expect") != "" {
			fmt.Fprint(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		text := fmt.Sprintf("%s%s %d %x", r.Host, r.URL.Path, n, sum.Sum(nil)[:4])
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
}

const asked = "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n"

// answers reads so many answers, and what comes then.
func answers(t *testing.T, c *net.TCPConn, n int) (list []string, reader *bufio.Reader) {
	t.Helper()
	reader = bufio.NewReader(c)
	for range n {
		r, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("after %q: %v", list, err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%d %s", r.StatusCode, body))
	}
	return list, reader
}

// Each request of a connection is compared with its name: one that names another host
// gets a readable answer after those to the ones before, and never reaches the server.
// Without the proxy between, the same server answers it.
func TestLaterRequestOfAnotherHost(t *testing.T) {
	b := start(t, allow("a.test", "b.test"), site, nil)
	for name, text := range map[string]string{
		"pipelined": asked + "GET /2 HTTP/1.1\r\nHost: secret.test\r\n\r\n" + asked,
		"a body":    "POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab" + "GET /2 HTTP/1.1\r\nHost: secret.test\r\n\r\n",
		"chunks":    "POST /1 HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n" + "GET /2 HTTP/1.1\r\nHost: secret.test\r\n\r\n",
		"no socket": "GET /1 HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n" + "GET /2 HTTP/1.1\r\nHost: secret.test\r\n\r\n",
		"allowed":   asked + "GET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n",
	} {
		direct, err := net.Dial("tcp", b.dialer.to)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(direct, text)
		if got, _ := answers(t, direct.(*net.TCPConn), 2); strings.HasPrefix(got[1], "200 a.test") || !strings.HasPrefix(got[1], "200 ") {
			t.Errorf("%s: the server itself answers %q", name, got)
		}
		_ = direct.Close()

		c := b.dial("a.test", 80)
		fmt.Fprint(c, text)
		got, reader := answers(t, c, 2)
		if !strings.HasPrefix(got[0], "200 a.test/1 ") || !strings.HasPrefix(got[1], "403 "+string(sbxerr.EgressMismatch)) || !strings.Contains(got[1], "it names ") {
			t.Errorf("%s: %q", name, got)
		}
		if n, err := io.Copy(io.Discard, reader); n > 0 || err != nil {
			t.Errorf("%s: %d bytes more, %v", name, n, err)
		}
		_ = c.Close()
		refused, carried := b.record(), b.record()
		if refused.Verdict != attempt.Refused || refused.Rule != ruleMismatch || refused.Code != sbxerr.EgressMismatch || refused.Name != "a.test" || refused.Sent != 0 {
			t.Errorf("%s: the request has the record %+v", name, refused)
		}
		if carried.Verdict != attempt.Allowed || carried.Reason != "" || int(carried.Sent) >= len(text) {
			t.Errorf("%s: the connection has the record %+v", name, carried)
		}
	}
}

// Requests to the one host share a connection, large bodies arrive whole, and another
// protocol that the server takes is not looked at.
func TestRequestsShareAConnection(t *testing.T) {
	b := start(t, allow("a.test"), site, nil)
	c := b.dial("a.test", 80)
	reader := bufio.NewReader(c)
	large := strings.Repeat("0123456789abcdef", 1<<18)
	sum := sha256.Sum256([]byte(large))
	for i := range 4 {
		r, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://a.test/%d", i), io.MultiReader(strings.NewReader(large)))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			r.ContentLength = int64(len(large)) // else it comes in chunks
		}
		go func() { _ = r.Write(c) }()
		answer, err := http.ReadResponse(reader, r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if want := fmt.Sprintf("a.test/%d %d %x", i, len(large), sum[:4]); string(text) != want || err != nil {
			t.Errorf("request %d: %q, %v; want %q", i, text, err, want)
		}
	}
	_ = c.Close()
	if a := b.record(); a.Verdict != attempt.Allowed || a.Sent < 4*int64(len(large)) {
		t.Errorf("%+v", a)
	}

	c = b.dial("a.test", 80)
	got, err := talk(c, "GET /socket HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
	if err != nil || !strings.HasSuffix(got, "\r\n\r\n\x81\x05hello GET / HTTP/1.1\r\nHost: b.test\r\n\r\n") {
		t.Errorf("a socket: %q, %v", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Allowed {
		t.Errorf("a socket: %+v", a)
	}

	c = b.dial("a.test", 80)
	fmt.Fprint(c, "PUT /1 HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	reader = bufio.NewReader(c)
	if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(c, "ab"+asked)
	_, _ = reader.ReadString('\n')
	for i := range 2 {
		r, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := httputil.DumpResponse(r, true); err != nil || r.StatusCode != 200 {
			t.Errorf("answer %d: %q, %v", i, text, err)
		}
	}
}

// A socket may be asked for on a connection that served requests before. What was answered
// to them, in a body too, is taken for no answer to that.
func TestSocketAfterRequests(t *testing.T) {
	b := start(t, allow("a.test"), site, nil)
	const socket = "GET /socket HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	const refused = "GET /none HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	for name, text := range map[string]string{"one by one": "", "pipelined": asked + socket} {
		c := b.dial("a.test", 80)
		if text == "" {
			fmt.Fprint(c, asked)
			if got, _ := answers(t, c, 1); !strings.HasPrefix(got[0], "200 a.test/1 ") {
				t.Fatalf("%s: %q", name, got)
			}
			fmt.Fprint(c, refused+asked)
			if got, _ := answers(t, c, 2); !strings.HasPrefix(got[0], "200 a.test/none ") || !strings.HasPrefix(got[1], "200 a.test/1 ") {
				t.Fatalf("%s: one that the server does not take: %q", name, got)
			}
			text = socket
		}
		got, err := talk(c, text+"\x81\x05hello GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
		if err != nil || !strings.HasSuffix(got, "Upgrade: websocket\r\n\r\n\x81\x05hello GET / HTTP/1.1\r\nHost: b.test\r\n\r\n") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if a := b.record(); a.Verdict != attempt.Allowed || a.Reason != "" || a.Sent < int64(len(text)) || a.Received < int64(len(got)) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// Where a server has ended its connection, the way to it is decided on anew: where no rule allows it
// by then, nothing leaves.
func TestServerEndsItsConnection(t *testing.T) {
	ended := make(chan struct{}, 4)
	once := func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		_ = c.Close()
		ended <- struct{}{}
	}
	b := start(t, allow("a.test"), once, nil)
	change := func() {}
	b.dialer.before = func() { change() }
	c := b.dial("a.test", 80)
	for range 3 {
		fmt.Fprint(c, asked)
		if got, _ := answers(t, c, 1); got[0] != "200 ok" {
			t.Fatalf("%q", got)
		}
		<-ended
	}
	if dialed := b.dialer.all(); len(dialed) != 3 {
		t.Errorf("dialled %q", dialed)
	}
	change = func() { b.SetPolicy(compile(t, allow("b.test"))) }
	fmt.Fprint(c, asked)
	if got, _ := io.ReadAll(c); strings.Contains(string(got), "200") {
		t.Errorf("%q", got)
	}
	if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied || a.Sent != int64(3*len(asked)) || a.Received == 0 {
		t.Errorf("%+v", a)
	}
}

// A later head that is not finished is refused in time, and takes no place from others: from
// whole ones, and from those of new connections.
func TestUnfinishedLaterHeads(t *testing.T) {
	const limit = time.Second
	b := start(t, allow("a.test"), site, func(c *Config) { c.Limits.Peek = limit })
	use := func(c *net.TCPConn) {
		t.Helper()
		fmt.Fprint(c, asked)
		if got, _ := answers(t, c, 1); !strings.HasPrefix(got[0], "200 a.test/1 ") {
			t.Fatalf("%q", got)
		}
	}
	other := b.dial("a.test", 80)
	use(other)
	var stuck []*net.TCPConn
	for range maxPeeks + 1 {
		c := b.dial("a.test", 80)
		use(c)
		stuck = append(stuck, c)
	}
	begun := time.Now()
	for _, c := range stuck {
		fmt.Fprint(c, "GET /2 HT")
	}
	for range 10 {
		use(other)
		use(b.dial("a.test", 80))
	}
	if took := time.Since(begun); took > limit/2 {
		t.Errorf("20 requests beside %d unfinished heads took %v", len(stuck), took)
	}
	for i, c := range stuck {
		got, _ := answers(t, c, 1)
		if !strings.HasPrefix(got[0], "403 "+string(sbxerr.EgressMismatch)) {
			t.Fatalf("head %d: %q", i, got)
		}
	}
	if took := time.Since(begun); took < limit || took > 4*limit {
		t.Errorf("refused after %v, want %v", took, limit)
	}
}

// Behind a request that the server does not answer nothing is read, and a client that goes away
// ends it.
func TestSilentServer(t *testing.T) {
	begun, heard := make(chan struct{}, 2), make(chan string, 1)
	b := start(t, allow("a.test"), func(c *net.TCPConn) {
		text := make([]byte, len(asked))
		_, _ = io.ReadFull(c, text)
		begun <- struct{}{}
		more, _ := io.ReadAll(c)
		heard <- string(text) + string(more)
	}, nil)
	c := b.dial("a.test", 80)
	fmt.Fprint(c, asked)
	<-begun
	_ = c.SetLinger(0)
	_ = c.Close()
	if text := <-heard; text != asked {
		t.Errorf("the server heard %q", text)
	}
	if a := b.record(); a.Verdict != attempt.Allowed || a.Reason != brokeOff {
		t.Errorf("%+v", a)
	}
	c = b.dial("a.test", 80)
	fmt.Fprint(c, asked+"GET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n")
	<-begun
	b.stop()
	if text := <-heard; text != asked {
		t.Errorf("the server heard %q", text)
	}
}
