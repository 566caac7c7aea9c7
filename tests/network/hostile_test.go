package network

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawHost is where the tests of this file have a server that hears everything.
const (
	rawHost = "93.184.215.77"
	rawName = "raw.example"
)

// ear answers any first bytes by HTTP, and remembers them.
type ear struct {
	mu    sync.Mutex
	heard []string
}

func newEar(t *testing.T) *ear {
	t.Helper()
	host.far.run(t, "ip addr add "+rawHost+" dev lo")
	t.Cleanup(func() { host.far.run(t, "ip addr del "+rawHost+"/32 dev lo") })
	host.dns.set(rawName, rawHost)
	e := &ear{}
	for _, port := range []string{":80", ":443"} {
		l, err := host.far.listenSoon(rawHost + port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go e.serve(l)
	}
	return e
}

func (e *ear) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 16<<10)
			n, _ := c.Read(buf)
			e.mu.Lock()
			e.heard = append(e.heard, string(buf[:n]))
			e.mu.Unlock()
			_, _ = io.WriteString(c, "HTTP/1.1 200 heard\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}()
	}
}

// take returns what was heard since the last call.
func (e *ear) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := e.heard
	e.heard = nil
	return heard
}

// P104: a name that is not one, or is another's, is refused, however it is spelled.
// Other spellings of the allowed one pass. Outside, all arrive.
func TestSpellings(t *testing.T) {
	e := newEar(t)
	reaches(t, rawName+":80", rawName+":443")
	s := create(t, "--allow", rawName, "--allow", "*."+rawName)
	requests := func(lines ...string) (quoted []string) {
		for _, line := range lines {
			quoted = append(quoted, strconv.Quote("GET / HTTP/1.1\r\n"+line+"\r\n\r\n"))
		}
		return quoted
	}
	targets := func(starts ...string) (quoted []string) {
		for _, start := range starts {
			quoted = append(quoted, strconv.Quote(start+" HTTP/1.1\r\nHost: raw.example\r\n\r\n"))
		}
		return quoted
	}
	hellos := func(names ...string) (quoted []string) {
		right := hello(t, rawName)
		for _, name := range names {
			if len(name) != len(rawName) { // the lengths in the hello stay true
				t.Fatalf("%q is no name of %d bytes", name, len(rawName))
			}
			quoted = append(quoted, strconv.Quote(strings.Replace(right, rawName, name, 1)))
		}
		return quoted
	}
	for _, tt := range []struct {
		name   string
		port   string
		texts  []string
		passes bool
	}{
		{"Host", "80", requests("Host: raw.example", "Host: RAW.Example", "host:raw.example", "Host: raw.example.", "Host: raw.example:80", "Host: raw.example:81", "Host: raw.example:", "Host:\t raw.example "), true},
		{"no Host", "80", requests(
			"Host: raw.example\x00.evil.example", "Host: evil.example\x00raw.example", "Host: raw.example\x00", "Host: raw.example evil.example", "Host: raw.example\tx", "Host: raw .example",
			"Host: raw.example%00", "Host: raw%2eexample", "Host: evil.example#raw.example", "Host: evil.example/raw.example", "Host: u@raw.example", "Host: raw.example@evil.example",
			"Host: raw.example:443:80", "Host: raw.example:65536", "Host: [::ffff:127.0.0.1]", "Host: 0x7f.1", "Host: 2130706433", "Host: 0177.0.0.1", "Host: 127.0.0.1",
			"Host: raw.example.evil.example", "Host: xraw.example", "Host: r\u0430w.example", "Host: \uff52aw.example", "Host: xn--rw-6kc.example", "Host: raw\u3002example", "Host: raw..example", "Host: raw.example..",
			"Host: "+strings.Repeat("a", 64)+".raw.example", "Host: "+strings.Repeat("a.", 130)+"raw.example", "Host: -x.raw.example ;",
			"Host: raw.example\r\nHost: evil.example", "Host: evil.example\r\nHost: raw.example", "Host : raw.example", "Host: raw.example\r\n evil.example", "Host: raw.example\rHost: evil.example",
			"Host: raw.example, evil.example",
			"Host : evil.example\r\nHost: raw.example", "Host: raw.example\r\nHost\t: evil.example", "X: a\r\n Host: evil.example\r\nHost: raw.example", "X: a\r\n\tHost: evil.example\r\nHost: raw.example",
			"X: a\rHost: evil.example\r\nHost: raw.example", "X: a\nHost: raw.example\n\n\r\nHost: evil.example", "\x0bHost: evil.example\r\nHost: raw.example",
		), false},
		{"target", "80", targets("GET /", "GET //evil.example/", "GET http://raw.example/", "GET HTTP://raw.example", "OPTIONS *"), true},
		{"no target", "80", targets(
			"GET http:evil.example/", "GET http:/evil.example/", "GET http:///evil.example/", "GET http://evil.example/", "GET http://raw.example@evil.example/", "GET http://raw.example?@evil.example/",
			"GET https://raw.example/", "GET evil.example:80", "GET evil.example/", "CONNECT evil.example:80", "GET *", "GET \thttp://evil.example/",
		), false},
		{"SNI", "443", hellos("raw.example", "RAW.EXAMPLE"), true},
		{"no SNI", "443", hellos("evil.exampl", "raw.exampl\x00", "raw\x00example", "raw.exampl.", "raw.exampl ", " aw.example", "raw.exampl:", "r@w.example", "raw%2eexamp", "127.0.0.001", "[::1]......", "raw\r\nexampl", "raw.ex\u0430mpl"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := rawName + ":" + tt.port
			e.take()
			if outside(t, append([]string{"request", rawHost + ":" + tt.port}, tt.texts...)...); len(e.take()) != len(tt.texts) {
				t.Fatal("not all controls arrived")
			}
			for _, text := range tt.texts {
				said := s.try("request", address, text)
				heard := e.take()
				if passed := len(heard) > 0; passed != tt.passes || passed != strings.Contains(said, "heard") {
					t.Errorf("%.80s: %s, and the server heard %.80q", text, said, heard)
				}
			}
		})
	}
}

// hello is the first message of a TLS client that asks for name.
func hello(t *testing.T, name string) string {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() // it hears nothing
	}()
	buf := make([]byte, 16<<10)
	n, err := io.ReadAtLeast(server, buf, 5)
	if err == nil && n < 5+int(buf[3])<<8+int(buf[4]) {
		_, err = io.ReadFull(server, buf[n:5+int(buf[3])<<8+int(buf[4])])
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:5+int(buf[3])<<8+int(buf[4])])
}

// P104: whatever bytes come from inside, the gateway lives, and what others have open
// goes on. Nothing of it reaches a server under a name that is not allowed.
func TestHostileBytes(t *testing.T) {
	e := newEar(t)
	reaches(t, rawName+":80", "db.example:5432")
	quiet := create(t, "--allow", "db.example:5432")
	open := quiet.held(t, "db.example:5432")
	loud := create(t, "--allow", rawName, "--allow", "db.example:5432")
	pid := gateway(t, daemon)
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	for _, target := range []string{"udp 127.0.0.1:53", "tcp 127.0.0.1:53", "tcp " + rawName + ":80", "tcp " + rawName + ":443", "tcp db.example:5432", "tcp 127.0.0.1:1"} {
		network, address, _ := strings.Cut(target, " ")
		said := loud.try("fuzz", network, address, fmt.Sprint(seed), "240")
		if address == "127.0.0.1:1" { // nobody is led there: it may end before it is sent to
			if !strings.HasSuffix(said, ", answered 0") {
				t.Errorf("%s: %q", target, said)
			}
		} else if !strings.HasPrefix(said, "sent 240,") || strings.HasSuffix(said, ", answered 0") {
			t.Errorf("%s: %q", target, said)
		}
		if said := quiet.try("echo", "db.example:5432"); said != "echo ping" {
			t.Errorf("%s: another sandbox: %q", target, said)
		}
	}
	select {
	case said := <-open:
		t.Errorf("the connection of another sandbox ended: %q", said)
	default:
	}
	if now := gateway(t, daemon); now != pid {
		t.Error("the gateway did not live through it")
	}
	loud.await(t, 20*time.Second, "heard", "request", rawName+":80", strconv.Quote("GET / HTTP/1.1\r\nHost: raw.example\r\n\r\n"))
	for _, heard := range e.take() {
		if !strings.Contains(strings.ToLower(heard), rawName) {
			t.Errorf("the server heard %.100q", heard)
		}
	}
	if list := traffic(t, loud); !slices.ContainsFunc(list, func(e entry) bool { return e.Verdict == "refused" && e.Name == rawName }) {
		t.Error("nothing of it was seen")
	}
}

// P108: each request of a connection is compared with its name.
func TestLaterRequest(t *testing.T) {
	reaches(t, "web.example:80")
	if said := outside(t, "later", "http://"+public+"/", "other.example"); !strings.Contains(said, "you asked for other.example") {
		t.Fatalf("the control: %q", said)
	}
	s := create(t, "--allow", "web.example")
	check(t, s, []attempt{
		{"the same host", []string{"later", "http://web.example/", "web.example"}, "200 I am " + public},
		{"another host", []string{"later", "http://web.example/", "other.example"}, "403 SBX-703"},
	})
	log := daemon.Run(t, "policy", "log", s.id, "-o", "json").Stdout
	if !strings.Contains(log, `"host named by the client"`) || !strings.Contains(log, "it names other.example") {
		t.Errorf("the record does not tell: %s", log)
	}
}

// P102, P109: no program between a command and the gateway changes what is allowed, and
// neither the gateway's own sockets nor what another sandbox was given lead anywhere.
//
//caisson:kernel
func TestAround(t *testing.T) {
	reaches(t, "web.example:80", "other.example:80")
	other := create(t, "--allow", "other.example")
	address := other.try("names", "other.example")
	if said := other.try("http", "http://"+address+"/", "other.example"); !strings.Contains(said, "200 I am "+elsewhere) {
		t.Fatalf("the control, from its own sandbox: %q", said)
	}
	s := create(t, "--allow", "web.example")
	for port, to := range map[string]string{"8001": "web.example:80", "8002": elsewhere + ":80"} {
		daemon.Run(t, "exec", "-d", s.id, "--", "/workspace/client", "relay", "127.0.0.1:"+port, to)
	}
	s.await(t, 10*time.Second, "200 I am "+public, "http", "http://127.0.0.1:8001/", "web.example")
	check(t, s, []attempt{
		{"P102 by a relay, another name", []string{"http", "http://127.0.0.1:8001/", "other.example"}, "SBX-703"},
		{"P102 by a relay, an address", []string{"http", "http://127.0.0.1:8002/", "other.example"}, "error:"},
		{"P109 the gateway's own listener", []string{"http", "http://127.0.0.1:1/", "web.example"}, "error:"},
		{"P109 an address of another sandbox", []string{"http", "http://" + address + "/", "other.example"}, "SBX-70"},
	})
}
