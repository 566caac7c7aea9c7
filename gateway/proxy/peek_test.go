package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
)

type unixDialer struct{ path string }

func (d unixDialer) DialContext(context.Context, string, string) (net.Conn, error) {
	l, err := net.Listen("unix", d.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	return net.Dial("unix", d.path)
}

// web answers each request with what it got.
func web(c *net.TCPConn) {
	r := bufio.NewReader(c)
	for {
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(request.Body)
		text := request.Method + " " + request.Host + " " + string(body)
		response := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}
		if response.Write(c) != nil {
			return
		}
	}
}

func TestHTTP(t *testing.T) {
	b := start(t, allow("a.test", "b.test"), web, nil)
	big := strings.Repeat("x", 100_000)
	for name, tc := range map[string]struct {
		request string
		status  int
		want    string // in the body
	}{
		"plain":              {"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 200, "GET a.test"},
		"case, dot, port":    {"GET / HTTP/1.1\r\nhost: A.Test.:80\r\n\r\n", 200, "GET A.Test.:80"},
		"with a body":        {"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody", 200, "POST a.test body"},
		"absolute":           {"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 200, "GET a.test"},
		"absolute, no path":  {"GET HTTP://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n", 200, "GET a.test"},
		"an empty port":      {"GET http://a.test:/ HTTP/1.1\r\nHost: a.test:\r\n\r\n", 200, "GET a.test:"},
		"all of the server":  {"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", 200, "OPTIONS a.test"},
		"CONNECT to itself":  {"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", 200, "CONNECT a.test:443"},
		"text beyond ASCII":  {"GET / HTTP/1.1\r\nX: \u00e9\r\nHost: a.test\r\n\r\n", 200, "GET a.test"},
		"other host":         {"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", 403, "it names b.test\nconnect to b.test by its own name\n"},
		"not allowed host":   {"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, "connect to evil.test by its own name; allow it with --allow evil.test:80"},
		"suffix":             {"GET / HTTP/1.1\r\nHost: a.test.evil.test\r\n\r\n", 403, "SBX-703"},
		"no host":            {"GET / HTTP/1.1\r\n\r\n", 403, "has 0 Host headers"},
		"HTTP/1.0":           {"GET / HTTP/1.0\r\n\r\n", 403, "has 0 Host headers"},
		"two hosts":          {"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", 403, "too many Host headers"},
		"two in target":      {"GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "names two hosts"},
		"CONNECT":            {"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n", 403, "it names b.test"},
		"user":               {"GET / HTTP/1.1\r\nHost: x@a.test\r\n\r\n", 403, "SBX-703"},
		"address":            {"GET / HTTP/1.1\r\nHost: 9.9.9.9\r\n\r\n", 403, "SBX-703"},
		"IPv6":               {"GET / HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:80\r\n\r\n", 403, "SBX-703"},
		"NUL":                {"GET / HTTP/1.1\r\nHost: a.test\x00.evil\r\n\r\n", 403, "SBX-703"},
		"name in brackets":   {"GET / HTTP/1.1\r\nHost: [a.test]:80\r\n\r\n", 403, "brackets around what is no IPv6 address"},
		"brackets, no port":  {"GET / HTTP/1.1\r\nHost: [a.test]\r\n\r\n", 403, "brackets around what is no IPv6 address"},
		"brackets in target": {"GET http://[a.test]:80/ HTTP/1.1\r\nHost: [a.test]:80\r\n\r\n", 403, "SBX-703"},
		"HTTP/1.0, a host":   {"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", 200, "GET a.test"},
		"HTTP/0.9":           {"GET / HTTP/0.9\r\nHost: a.test\r\n\r\n", 403, `its version is "HTTP/0.9"`},
		"HTTP/1.2":           {"GET / HTTP/1.2\r\nHost: a.test\r\n\r\n", 403, `its version is "HTTP/1.2"`},
		"two ports":          {"GET / HTTP/1.1\r\nHost: a.test:443:80\r\n\r\n", 403, "SBX-703"},
		"port":               {"GET / HTTP/1.1\r\nHost: a.test:65536\r\n\r\n", 403, "has the port"},
		"IDN homograph":      {"GET / HTTP/1.1\r\nHost: \u0430.test\r\n\r\n", 403, "SBX-703"},
		"folded":             {"GET / HTTP/1.1\r\nX: y\r\n Host: b.test\r\nHost: a.test\r\n\r\n", 403, "a header is folded"},
		"folded by a tab":    {"GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\tHost: b.test\r\n\r\n", 403, "a header is folded"},
		"space":              {"GET / HTTP/1.1\r\nHost : b.test\r\nHost: a.test\r\n\r\n", 403, `the header "Host " has white space before its colon`},
		"space elsewhere":    {"GET / HTTP/1.1\r\nHost: a.test\r\nX\t: y\r\n\r\n", 403, "SBX-703"},
		"space in a name":    {"GET / HTTP/1.1\r\nHost: a.test\r\nX Host: b.test\r\n\r\n", 403, `"X Host" is no name of a header`},
		"control in a name":  {"GET / HTTP/1.1\r\n\vHost: b.test\r\nHost: a.test\r\n\r\n", 403, "SBX-703"},
		"no name":            {"GET / HTTP/1.1\r\nHost: a.test\r\n: b.test\r\n\r\n", 403, "SBX-703"},
		"control in a value": {"GET / HTTP/1.1\r\nX: y\x00\r\nHost: a.test\r\n\r\n", 403, "SBX-703"},
		"CR alone":           {"GET / HTTP/1.1\r\nX: y\rHost: b.test\r\nHost: a.test\r\n\r\n", 403, "SBX-703"},
		"LF alone":           {"GET / HTTP/1.1\r\nX: y\nHost: a.test\n\n\r\nHost: b.test\r\n\r\n", 403, "something else than CR LF"},
		"scheme, no slashes": {"GET http:b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, `its target "http:b.test/" is neither a path nor http://HOST/`},
		"scheme, one slash":  {"GET http:/b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "is neither a path"},
		"another scheme":     {"GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "is neither a path"},
		"no authority":       {"GET http:///b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "names two hosts"},
		"user in target":     {"GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "names two hosts"},
		"query in target":    {"GET http://a.test?@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "names two hosts"},
		"authority, no path": {"GET b.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "SBX-703"},
		"CONNECT to a path":  {"CONNECT /b.test HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "names two hosts"},
		"asterisk":           {"GET * HTTP/1.1\r\nHost: a.test\r\n\r\n", 403, "SBX-703"},
		"HTTP/2":             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403, "SBX-703"},
		"no HTTP":            {"SSH-2.0-x\r\n", 403, "no HTTP request"},
		"a head without end": {"GET / HTTP/1.1\r\nX: " + big, 403, "longer than 32768 bytes"},
	} {
		c := b.dial("a.test", 80)
		_, _ = c.Write([]byte(tc.request)) // a reset in between is found below
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(response.Body)
		if response.StatusCode != tc.status || err != nil || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: %d %q, %v; want %d %q", name, response.StatusCode, body, err, tc.status, tc.want)
		}
		_ = c.Close()
		a := b.record()
		if (tc.status == 200) != (a.Verdict == attempt.Allowed) || tc.status != 200 && (a.Code != sbxerr.EgressMismatch || a.Address.IsValid()) {
			t.Errorf("%s: %+v", name, a)
		}
		if tc.status == 200 && (a.Sent < 30 || a.Received == 0) {
			t.Errorf("%s: %d bytes sent of %d", name, a.Sent, len(tc.request))
		}
	}
	for _, d := range b.dialer.all() {
		if d != "9.9.9.9:80" {
			t.Errorf("dialled %s", d)
		}
	}
}

// What is refused before the host is looked at is said in HTTP as well.
func TestHTTPRefusals(t *testing.T) {
	b := start(t, allow("in.example", "gone.example", "dead.example"), web, nil)
	b.resolver.set("in.example", "10.0.0.1")
	b.resolver.set("dead.example", "9.9.9.1")
	b.dialer.dead = []string{"9.9.9.1:80"}
	for host, want := range map[string]string{
		"evil.example": "403 SBX-701\nevil.example:80 is allowed by no rule (mode allow)\nallow it with --allow evil.example:80\n",
		"9.9.9.9":      "403 SBX-701\n9.9.9.9:80 is an address that no rule allows; connect by name where you can (mode allow)\nallow it with --allow 9.9.9.9:80\n",
		"198.18.9.9":   "403 SBX-701\nthe address 198.18.9.9 means no name in this sandbox (pool)\nresolve the name again\n",
		"in.example":   "403 SBX-702\nin.example:80, which leads to 10.0.0.1, is refused: that address is not public (private (RFC 1918)) (allow in.example:80+443)\nallow it with --allow in.example:80,private\n",
		"gone.example": "502 SBX-704\n",
		"dead.example": "502 SBX-705\n",
	} {
		c := b.dial(host, 80)
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		if got := response.Status[:4] + string(body); !strings.HasPrefix(got, want) || !strings.HasPrefix(string(body), response.Header.Get("X-Caisson-Code")) {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
		if strings.Contains(string(body), "9.9.9.1") {
			t.Errorf("%s: %q tells what was dialled", host, body)
		}
		_ = c.Close()
		b.record()
	}
}

// hello is the ClientHello that crypto/tls sends for name.
func hello(t testing.TB, name string, change func(*tls.Config)) []byte {
	t.Helper()
	client, server := net.Pipe()
	c := &tls.Config{ServerName: name, InsecureSkipVerify: true}
	if change != nil {
		change(c)
	}
	go func() { _ = tls.Client(client, c).Handshake() }()
	buffer := make([]byte, maxPeek)
	n, err := io.ReadAtLeast(server, buffer, 5)
	if err != nil {
		t.Fatal(err)
	}
	for n < 5+int(buffer[3])<<8+int(buffer[4]) {
		more, err := server.Read(buffer[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	_ = client.Close()
	_ = server.Close()
	return buffer[:n]
}

// records splits the handshake message in one record into records of size bytes.
func split(record []byte, size int) []byte {
	var out []byte
	for body := record[5:]; len(body) > 0; {
		n := min(size, len(body))
		out = append(append(out, record[0], record[1], record[2], byte(n>>8), byte(n)), body[:n]...)
		body = body[n:]
	}
	return out
}

// relist puts a list of server names into the hello for a.test.
func relist(t testing.TB, hello []byte, list string) []byte {
	t.Helper()
	old := []byte("\x00\x00\x00\x0b\x00\x09\x00\x00\x06a.test")
	now := append([]byte{0, 0, 0, byte(len(list) + 2), 0, byte(len(list))}, list...)
	if bytes.Count(hello, old) != 1 {
		t.Fatalf("the hello %x does not name a.test", hello)
	}
	out := bytes.Replace(hello, old, now, 1)
	extensions := 5 + 4 + 2 + 32
	extensions += 1 + int(out[extensions])                             // session
	extensions += 2 + int(out[extensions])<<8 + int(out[extensions+1]) // suites
	extensions += 1 + int(out[extensions])                             // compressions
	for _, length := range []int{3, 7, extensions} {                   // of the record, the message and the extensions
		n := int(out[length])<<8 + int(out[length+1]) + len(now) - len(old)
		out[length], out[length+1] = byte(n>>8), byte(n)
	}
	return out
}

func TestTLS(t *testing.T) {
	b := start(t, allow("a.test", "b.test"), echo, nil)
	long := func(c *tls.Config) {
		for range 60 {
			c.NextProtos = append(c.NextProtos, strings.Repeat("p", 200))
		}
	}
	good := hello(t, "a.test", nil)
	for name, tc := range map[string]struct {
		said  []byte
		piece int // bytes at once; 0 is all
		alert byte
	}{
		"plain":              {good, 0, 0},
		"upper case":         {hello(t, "A.TEST", nil), 0, 0},
		"byte by byte":       {good, 1, 0},
		"in small records":   {split(good, 7), 0, 0},
		"both":               {split(good, 100), 3, 0},
		"12 kB":              {hello(t, "a.test", long), 1000, 0},
		"12 kB in records":   {split(hello(t, "a.test", long), 500), 0, 0},
		"other host":         {hello(t, "b.test", nil), 0, alertUnrecognizedName},
		"other host, split":  {split(hello(t, "b.test", nil), 9), 5, alertUnrecognizedName},
		"no name":            {hello(t, "", nil), 0, alertUnrecognizedName},
		"an address":         {hello(t, "9.9.9.9", nil), 0, alertUnrecognizedName},
		"suffix":             {hello(t, "a.test.evil.test", nil), 0, alertUnrecognizedName},
		"the same list":      {relist(t, good, "\x00\x00\x06a.test"), 0, 0}, // the control
		"foreign type first": {relist(t, good, "\x01\x00\x06b.test\x00\x00\x06a.test"), 0, alertUnrecognizedName},
		"foreign type last":  {relist(t, good, "\x00\x00\x06a.test\x01\x00\x06b.test"), 0, alertUnrecognizedName},
		"two names":          {relist(t, good, "\x00\x00\x06a.test\x00\x00\x06b.test"), 0, alertUnrecognizedName},
		"HTTP":               {[]byte("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), 0, alertUnrecognizedName},
		"too long":           {append([]byte{22, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff}, make([]byte, 70_000)...), 0, alertUnrecognizedName},
		"too long, in parts": {split(append([]byte{22, 3, 1, 0, 0, 1, 0, 0xff, 0xff}, make([]byte, 65535)...), 4096), 0, alertUnrecognizedName},
	} {
		c := b.dial("a.test", 443)
		for rest := tc.said; len(rest) > 0; {
			n := len(rest)
			if tc.piece > 0 {
				n = min(n, tc.piece)
			}
			if _, err := c.Write(rest[:n]); err != nil {
				break // found below
			}
			rest = rest[n:]
		}
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		want := tc.said
		if tc.alert != 0 {
			want = []byte{21, 3, 3, 0, 2, 2, tc.alert}
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes %.20x, %v; want %d bytes %.20x", name, len(got), got, err, len(want), want)
		}
		if a := b.record(); (tc.alert == 0) != (a.Verdict == attempt.Allowed) || tc.alert != 0 && a.Code != sbxerr.EgressMismatch {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A real client understands the alert.
func TestTLSClientReadsTheAlert(t *testing.T) {
	b := start(t, allow("a.test"), echo, nil)
	for host, want := range map[string]string{"evil.test": "access denied", "a.test": "unrecognized name"} {
		err := tls.Client(b.dial(host, 443), &tls.Config{ServerName: "b.test", InsecureSkipVerify: true}).Handshake()
		if err == nil || !strings.Contains(err.Error(), "remote error: tls: "+want) {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}

func TestPeekHasADeadline(t *testing.T) {
	t.Parallel()
	for port, want := range map[uint16]string{80: "HTTP/1.1 403", 443: "\x15\x03\x03"} {
		t.Run(strconv.Itoa(int(port)), func(t *testing.T) {
			t.Parallel()
			b := start(t, allow("a.test"), echo, func(c *Config) { c.Limits.Peek = 100 * time.Millisecond })
			c := b.dial("a.test", port)
			if _, err := c.Write([]byte("G")); err != nil { // and no more
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), want) && port == 80 {
				t.Errorf("%q, %v", got, err)
			}
			if a := b.record(); a.Code != sbxerr.EgressMismatch || a.Duration > 5*time.Second {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Why a client was not heard is said without addresses, which mean nothing to anybody.
func TestSilenceIsToldPlainly(t *testing.T) {
	b := start(t, allow("a.test"), echo, func(c *Config) { c.Limits.Peek = 100 * time.Millisecond })
	for name, tc := range map[string]struct {
		says string
		ends bool
		want string
	}{
		"nothing":             {"", false, "the client said nothing within 100ms"},
		"a part":              {"GET / HT", false, "the client did not finish what names its host within 100ms"},
		"nothing, and an end": {"", true, "the client said nothing before it was done"},
		"a part, and an end":  {"GET / HT", true, "the client did not finish what names its host before it was done"},
	} {
		c := b.dial("a.test", 80)
		_, _ = io.WriteString(c, tc.says)
		if tc.ends {
			_ = c.CloseWrite()
		}
		got, _ := io.ReadAll(c)
		if a := b.record(); !strings.HasSuffix(a.Reason, ", but "+tc.want) || a.Code != sbxerr.EgressMismatch || !strings.Contains(string(got), tc.want) {
			t.Errorf("%s: %s, %q", name, a.Reason, got)
		}
	}
}

// Few unfinished heads are held at once, however many there are; one that is silent
// keeps nobody waiting, and one that waited is carried when its turn comes.
func TestPeeksAreBounded(t *testing.T) {
	const count = 3 * maxPeeks
	b := start(t, allow("a.test"), echo, nil)
	said := hello(t, "a.test", func(c *tls.Config) {
		for range 60 {
			c.NextProtos = append(c.NextProtos, strings.Repeat("p", 200))
		}
	})
	carried := func(c *net.TCPConn) {
		t.Helper()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, said) {
			t.Errorf("%d bytes of %d, %v", len(got), len(said), err)
		}
	}
	var clients []*net.TCPConn
	for range count {
		clients = append(clients, b.dial("a.test", 443))
	}
	beside := b.dial("a.test", 443)
	_, _ = beside.Write(said)
	_ = beside.CloseWrite()
	carried(beside)
	for _, c := range clients {
		if _, err := c.Write(said[:len(said)-1]); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(5 * time.Second); b.waiting() != count-maxPeeks && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	if n := b.waiting(); n != count-maxPeeks {
		t.Errorf("%d of %d wait in the kernel, want all but %d", n, count, maxPeeks)
	}
	for _, c := range clients {
		_, _ = c.Write(said[len(said)-1:])
		_ = c.CloseWrite()
	}
	for _, c := range clients {
		carried(c)
	}
}

// waiting counts the connections of which bytes wait in the kernel.
func (b *bench) waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.flows {
		if f.seat.queued() > 0 {
			n++
		}
	}
	return n
}

// FuzzPeek: what is kept is what was sent, and a host that is found was there.
func FuzzPeek(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a.test\r\n\r\nbody"), false)
	f.Add([]byte("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n"), false)
	f.Add([]byte("GET / HTTP/1.1\r\nHost : b.test\r\nX: y\r\n Host: b.test\r\nHost: a.test:\r\n\r\n"), false)
	f.Add([]byte("GET http:b.test/ HTTP/1.1\nHost: a.test\n\n\rHost: b.test\r\n\r\n"), false)
	f.Add(hello(f, "a.test", nil), true)
	f.Fuzz(func(t *testing.T, said []byte, secure bool) {
		tp := &tape{Conn: reading{bytes.NewReader(said)}}
		find := hostHeader
		if secure {
			find = serverName
		}
		host, err := find(tp)
		if kept := tp.kept.Bytes(); !bytes.HasPrefix(said, kept) || len(kept) > maxPeek {
			t.Fatalf("kept %q of %q", kept, said)
		}
		if err == nil && !bytes.Contains(said, []byte(host)) {
			t.Fatalf("%q is not in %q", host, said)
		}
		if n := looseHosts(said); err == nil && !secure && n != 1 {
			t.Fatalf("%d Host headers in %q", n, said)
		}
	})
}

// looseHosts counts the Host headers that the most lenient server would find: any
// control character ends a line, and white space means nothing.
func looseHosts(said []byte) (n int) {
	head, _, _ := bytes.Cut(said, []byte("\r\n\r\n"))
	lines := bytes.FieldsFunc(head, func(r rune) bool { return r < ' ' && r != '\t' })
	for _, line := range lines[min(1, len(lines)):] {
		if name, _, _ := bytes.Cut(line, []byte(":")); strings.EqualFold(strings.TrimSpace(string(name)), "host") {
			n++
		}
	}
	return n
}

// reading is a connection that only says something.
type reading struct{ io.Reader }

func (reading) Write(p []byte) (int, error)      { return len(p), nil }
func (reading) Close() error                     { return nil }
func (reading) LocalAddr() net.Addr              { return nil }
func (reading) RemoteAddr() net.Addr             { return nil }
func (reading) SetDeadline(time.Time) error      { return nil }
func (reading) SetReadDeadline(time.Time) error  { return nil }
func (reading) SetWriteDeadline(time.Time) error { return nil }
