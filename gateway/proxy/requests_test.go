package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

const request = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"

// heard is what a server was sent on a connection, and how many requests of it were whole.
type heard struct {
	text  string
	whole int
}

// listener answers each whole request with 204, and tells what it heard when the connection is over.
func listener(told chan<- heard) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		var h heard
		var text bytes.Buffer
		reader := bufio.NewReader(io.TeeReader(c, &text))
		defer func() {
			h.text = text.String()
			told <- h
		}()
		for {
			r, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			h.whole++
			fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}
}

// send sends text in pieces of that many bytes, and says that this is all.
func send(c *net.TCPConn, text string, piece int) {
	_ = c.SetNoDelay(true)
	for len(text) > 0 {
		n := min(piece, len(text))
		if _, err := io.WriteString(c, text[:n]); err != nil {
			return
		}
		text = text[n:]
	}
	_ = c.CloseWrite()
}

// What every server reads as requests to the one host passes, however it is cut into segments, and
// is written in one way.
func TestRequestsPass(t *testing.T) {
	told := make(chan heard, 1)
	b := start(t, allow("a.test"), listener(told), func(c *Config) { c.Limits.NewBurst = 1 << 20 })
	post := func(fields, body string) string {
		return "POST / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n\r\n" + body
	}
	head := func(fields string) string { return "GET / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n" }
	const chunk = "5\r\n12345\r\n"
	for name, tc := range map[string]struct{ text, want string }{ // without want: as it is
		"one":                  {request, ""},
		"two":                  {request + request, ""},
		"with a port":          {"GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n" + request, ""},
		"absolute":             {"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n" + request, "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n" + request},
		"absolute with a port": {"GET http://a.test:80/ HTTP/1.1\r\nHost: a.test\r\n\r\n" + request, "GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n" + request},
		"capitals":             {"GET HTTP://A.Test/x HTTP/1.1\r\nHost: a.test\r\n\r\n" + request, "GET /x HTTP/1.1\r\nHost: A.Test\r\n\r\n" + request},
		"as it is written":     {"GET /a%2Fb/%7e|\"{}?q=%2f&a;b#c HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
		"two slashes":          {"GET //b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
		"a body":               {post("Content-Length: 5", "12345") + request, ""},
		"a body like a head":   {post("Content-Length: 34", strings.ReplaceAll(request, "a.test", "b.test")+"xx") + request, ""},
		"no body":              {post("Content-Length: 0", "") + request, ""},
		"chunks":               {post("Transfer-Encoding: chunked", chunk+"0\r\n\r\n") + request, ""},
		"CHUNKED":              {post("transfer-encoding: Chunked", "00\r\n\r\n") + request, post("Transfer-Encoding: chunked", "0\r\n\r\n") + request},
		"a size that is wide":  {post("Transfer-Encoding: chunked", "05;x=y\r\n12345\r\n0\r\n\r\n") + request, post("Transfer-Encoding: chunked", chunk+"0\r\n\r\n") + request},
		"a space after a size": {post("Transfer-Encoding: chunked", "5 \r\n12345\r\n0\r\n\r\n") + request, post("Transfer-Encoding: chunked", chunk+"0\r\n\r\n") + request},
		"trailers":             {post("Transfer-Encoding: chunked", "0\r\nX-Other: 2\r\nX-Sum: 1\r\n\r\n") + request, ""},
		"a host in a trailer":  {post("Transfer-Encoding: chunked", "0\r\nHost: b.test\r\nX-Sum: 1\r\nContent-Length: 7\r\n\r\n") + request, post("Transfer-Encoding: chunked", "0\r\nX-Sum: 1\r\n\r\n") + request},
		"a spaced trailer":     {post("Transfer-Encoding: chunked", "0\r\nHost : b.test\r\n\r\n") + request, post("Transfer-Encoding: chunked", "0\r\n\r\n") + request},
		"header case":          {head("user-agent: x\r\nx-a: 1\r\n"), head("User-Agent: x\r\nX-A: 1\r\n")},
		"empty lines":          {"\r\n" + request + "\r\n\r\n" + request, request + request},
		"a line after a body":  {post("Content-Length: 2", "ab\r\n") + request, post("Content-Length: 2", "ab") + request},
		"the offer of Java": {
			head("Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\nUser-Agent: Java\r\n") + request,
			head("User-Agent: Java\r\n") + request,
		},
		"an offer in a list": {head("Upgrade: websocket, H2C\r\nconnection: upgrade , x,http2-settings\r\n"), head("")},
		"settings alone":     {head("HTTP2-Settings: x\r\nX: h2c\r\n") + request, head("X: h2c\r\n") + request},
		"a later offer":      {request + head("Upgrade: h2c\r\n") + request, request + head("") + request},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			if tc.want == "" {
				tc.want = tc.text
			}
			c := b.dial("a.test", 80)
			go send(c, tc.text, piece)
			if text, err := io.ReadAll(c); err != nil || strings.Count(string(text), "204") != strings.Count(strings.ToLower(tc.want), "host: a.test") {
				t.Errorf("%s in pieces of %d: %q, %v", name, piece, text, err)
			}
			_ = c.Close()
			merged := tc.want
			got := <-told
			if piece == 1 && strings.Contains(got.text, "1\r\n1\r\n1\r\n2\r\n") { // chunks go on as they come
				merged = strings.Replace(merged, chunk, "1\r\n1\r\n1\r\n2\r\n1\r\n3\r\n1\r\n4\r\n1\r\n5\r\n", 1)
			}
			if whole := strings.Count(strings.ToLower(tc.want), "host: a.test"); got.text != merged && piece != 7 || got.whole != whole {
				t.Errorf("%s in pieces of %d: the server heard %q, %d requests", name, piece, got.text, got.whole)
			}
			b.record()
		}
	}
}

// Of what servers read differently, or to another host, nothing passes, and of what came before
// everything. The client is told why.
func TestRequestsRefused(t *testing.T) {
	told := make(chan heard, 1)
	b := start(t, allow("a.test"), listener(told), func(c *Config) { c.Limits.NewBurst = 1 << 20 })
	chunked := "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	post := func(fields string) string { return "POST / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n\r\n" }
	for name, tc := range map[string]struct{ before, bad, says string }{
		"another host":              {request, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "names b.test"},
		"no host":                   {request, "GET / HTTP/1.1\r\n\r\n", "0 Host headers"},
		"two hosts":                 {request, "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", "too many Host headers"},
		"absolute":                  {request, "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"absolute with a port":      {request, "GET http://a.test:81/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"CONNECT":                   {request, "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"HTTP/2":                    {request, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2.0"},
		"length and chunks":         {request, post("Content-Length: 5\r\nTransfer-Encoding: chunked"), "Content-Length and a Transfer-Encoding"},
		"chunks and length":         {request, post("Transfer-Encoding: chunked\r\nContent-Length: 5"), "Content-Length and a Transfer-Encoding"},
		"two lengths":               {request, post("Content-Length: 5\r\nContent-Length: 6"), "Content-Length"},
		"the same length twice":     {request, post("Content-Length: 5\r\nContent-Length: 5"), "2 Content-Length"},
		"lengths in one":            {request, post("Content-Length: 5, 5"), "Content-Length"},
		"signed length":             {request, post("Content-Length: +5"), "Content-Length"},
		"negative length":           {request, post("Content-Length: -5"), "Content-Length"},
		"hexadecimal length":        {request, post("Content-Length: 0x5"), "Content-Length"},
		"large length":              {request, post("Content-Length: 99999999999999999999"), "Content-Length"},
		"empty length":              {request, post("Content-Length:"), "Content-Length"},
		"another encoding":          {request, post("Transfer-Encoding: gzip, chunked"), "gzip, chunked"},
		"identity":                  {request, post("Transfer-Encoding: identity"), "identity"},
		"two encodings":             {request, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x"), "transfer encoding"},
		"chunks of HTTP/1.0":        {request, "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"},
		"a name with a space":       {request, post("Content-Length : 5"), "white space"},
		"a folded header":           {request, "GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n Host: b.test\r\n\r\n", "folded"},
		"line feeds alone":          {request, "GET / HTTP/1.1\nHost: b.test\n\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "CR LF"},
		"a line feed first":         {request, "\n" + request, "no HTTP request"},
		"a carriage return first":   {request, "\r" + request, "no HTTP request"},
		"capitals of another host":  {request, "GET HTTP://B.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "two hosts"},
		"prefixed size":             {chunked, "0x5\r\n", "chunk length"},
		"signed size":               {chunked, "+5\r\n", "chunk length"},
		"size with an underscore":   {chunked, "1_0\r\n", "chunk length"},
		"no size":                   {chunked, "\r\n", "chunk length"},
		"size with a line feed":     {chunked, "5\n12345\r\n", "bare LF"},
		"long size":                 {chunked, "0000000000000000000005\r\n", "chunk length too large"},
		"data that goes on":         {chunked + "5\r\n12345", "6\r\n", "malformed chunked encoding"},
		"data without an end":       {chunked + "5\r\n12345", "\nx", "malformed chunked encoding"},
		"a broken trailer":          {chunked + "0\r\n", "X\r\n\r\n", "malformed MIME header"},
		"after a request in a body": {"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab", "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", "names b.test"},
		"a long head":               {request, "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxPeek), "longer than 32768"},
		"long trailers":             {chunked + "0\r\n", strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 2000) + "\r\n", "trailer"},
	} {
		for _, piece := range []int{1, 5, 1 << 20} {
			if len(tc.bad) > 1000 && piece < 1000 {
				continue
			}
			c := b.dial("a.test", 80)
			go send(c, tc.before+tc.bad, piece)
			text, _ := io.ReadAll(c)
			_ = c.Close()
			whole := strings.Count(tc.before, "\r\n\r\n") - strings.Count(tc.before, "chunked")
			if got := string(text); strings.Count(got, "204") != whole || !strings.Contains(got, "403") || !strings.Contains(got, string(sbxerr.EgressMismatch)) || !strings.Contains(got, tc.says) {
				t.Errorf("%s in pieces of %d: the client heard %q", name, piece, got)
			}
			if got := <-told; got.whole != whole || !strings.HasPrefix(got.text, tc.before[:strings.Index(tc.before, "\r\n\r\n")]) || strings.Count(got.text, "Host") != 1 {
				t.Errorf("%s in pieces of %d: the server heard %q", name, piece, got.text)
			}
			b.record()
			b.record()
		}
	}
}

// FuzzRequests: of whatever passes, a server hears a request that is read in one way alone.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(request + request))
	f.Add([]byte("POST /%zz HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\n12345\r\n0\r\nHost: y\r\n\r\n" + request))
	f.Add([]byte("POST //x HTTP/1.0\r\nHost: a.test\r\nContent-Length: 3\r\nUpgrade: h2c\r\n\r\nabc" + request))
	f.Add([]byte("OPTIONS * HTTP/1.1\r\nHost: a.test\r\nTrailer: Content-Length\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		from := &tape{Conn: reading{bytes.NewReader(text)}}
		r, host, err := readRequest(from, bufio.NewReader(from))
		if _, hostErr := policy.ParseWireName(host); err != nil || hostErr != nil {
			return
		}
		var out bytes.Buffer
		x := &exchange{plain: &plain{asks: bufio.NewWriter(&out)}, request: r}
		x.prepare()
		if r.Write(struct {
			io.Writer
			io.ByteWriter
		}{x.asks, x.asks}) != nil {
			return // the connection is reset
		}
		_ = x.asks.Flush()
		again := &tape{Conn: reading{bytes.NewReader(out.Bytes())}}
		in := bufio.NewReaderSize(again, 16)
		second, named, err := readRequest(again, in)
		if err != nil || named != host || second.Method != r.Method || looseHosts(out.Bytes()) != 1 {
			t.Fatalf("%q became %q: %v", text, out.Bytes(), err)
		}
		again.off = true
		if _, err := io.Copy(io.Discard, second.Body); err != nil {
			t.Fatalf("%q became %q: %v", text, out.Bytes(), err)
		}
		if rest, _ := io.ReadAll(in); len(rest) > 0 || len(second.Trailer["Host"]) > 0 || len(second.Trailer["Content-Length"]) > 0 {
			t.Fatalf("%q became %q, with %q behind it", text, out.Bytes(), rest)
		}
	})
}

// A client that is killed, or reads slowly, holds nothing but its connection.
func TestSlowAndGoneReaders(t *testing.T) {
	b := start(t, allow("a.test"), bodies, nil)
	for _, gone := range []bool{false, true} {
		c := b.dial("a.test", 80)
		fmt.Fprint(c, "GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n")
		first := make([]byte, 1<<20)
		if _, err := io.ReadFull(c, first); err != nil {
			t.Fatal(err)
		}
		if gone {
			_ = c.Close() // with bytes that are not read: a reset
		} else {
			n, err := io.Copy(io.Discard, io.LimitReader(c, largeBody-1<<20))
			if n != largeBody-1<<20 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			_ = c.Close()
		}
		if a := b.record(); (a.Reason == brokeOff) != gone || gone && a.Received > largeBody/2 {
			t.Errorf("gone %v: %+v", gone, a)
		}
	}
	for end := time.Now().Add(10 * time.Second); b.Connections() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := b.Connections(); n > 0 {
		t.Errorf("%d connections", n)
	}
}
