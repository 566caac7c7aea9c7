package upstream

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

var target = Target{Name: "a.example.com", Port: 443}

// open asks a proxy that behaves as play does.
func open(t testing.TB, s Spec, to Target, play func(net.Conn)) (rest []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	own, theirs := net.Pipe()
	t.Cleanup(func() { _ = own.Close() })
	go func() {
		defer func() { _ = theirs.Close() }()
		play(theirs)
	}()
	return compile(t, s).Open(ctx, own, to)
}

// answering is an HTTP proxy that tells what it is asked, and answers.
func answering(answer string, heard chan<- string) func(net.Conn) {
	return func(c net.Conn) {
		heard <- readHead(c)
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(io.Discard, c)
	}
}

func readHead(c net.Conn) string {
	var b strings.Builder
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

const plain = "http://proxy.corp:3128"

func TestConnect(t *testing.T) {
	for _, tc := range []struct {
		to           Target
		credentials  string
		answer       string
		asked, early string
	}{
		{target, "", "HTTP/1.1 200 Connection established\r\n\r\n", "CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com:443\r\n\r\n", ""},
		{target, secret, "HTTP/1.0 200 OK\r\nVia: x\r\n\r\nSSH-2.0-x\r\n",
			"CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com:443\r\nProxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(secret)) + "\r\n\r\n", "SSH-2.0-x\r\n"},
		{Target{Address: netip.MustParseAddr("2a00::1"), Port: 22}, "", "HTTP/1.1 204 x\r\nContent-Length: 9\r\n\r\n", "CONNECT [2a00::1]:22 HTTP/1.1\r\nHost: [2a00::1]:22\r\n\r\n", ""},
	} {
		heard := make(chan string, 1)
		rest, err := open(t, Spec{URL: plain, Credentials: NewSecret(tc.credentials)}, tc.to, answering(tc.answer, heard))
		if asked := <-heard; err != nil || asked != tc.asked || string(rest) != tc.early {
			t.Errorf("%q: %q, %v; asked %q", tc.answer, rest, err, asked)
		}
	}
}

// What a proxy says beside its status is for nobody, whatever it is.
func TestConnectRefused(t *testing.T) {
	echo := "\r\nProxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(secret)) + "\r\n\r\n"
	for _, tc := range []struct {
		answer, credentials string
		code                sbxerr.Code
		want, remedy        string
	}{
		{"HTTP/1.1 403 " + secret + echo, secret, sbxerr.EgressProxy, "does not connect to a.example.com:443: it answers 403 Forbidden", "operator of the proxy"},
		{"HTTP/1.1 407 x" + echo, "", sbxerr.EgressProxy, "407 Proxy Authentication Required", "names a file"},
		{"HTTP/1.1 407 x" + echo, secret, sbxerr.EgressProxy, "407 Proxy Authentication Required", "corrects the file"},
		{"HTTP/1.1 503 x" + echo, secret, sbxerr.EgressProxy, "503 Service Unavailable", "destination exists"},
		{"HTTP/1.1 302 x\r\nLocation: http://elsewhere.example/" + echo, secret, sbxerr.EgressProxy, "302 Found", ""},
		{"HTTP/1.1 199 x" + echo, secret, sbxerr.EgressProxy, "199", ""},
		{secret + echo, secret, sbxerr.EgressProxyDown, "is no HTTP", ""},
		{"HTTP/1.1 200 OK\r\nno header " + strings.ReplaceAll(secret, ":", "") + echo, secret, sbxerr.EgressProxyDown, "is no HTTP", ""},
		{"HTTP/1.1 2000000 x" + echo, secret, sbxerr.EgressProxyDown, "is no HTTP", ""},
		{"\x05\x00\x00\x00\r\n\r\n", secret, sbxerr.EgressProxyDown, "is no HTTP", ""},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n", secret, sbxerr.EgressProxyDown, "longer than 16384 bytes", ""},
		{"HTTP/1.1 " + strings.Repeat("2", 2*maxHead), secret, sbxerr.EgressProxyDown, "longer than 16384 bytes", ""},
		{strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 2), secret, sbxerr.EgressProxy, "100 Continue", ""},
	} {
		rest, err := open(t, Spec{URL: plain, Credentials: NewSecret(tc.credentials)}, target, answering(tc.answer, make(chan string, 1)))
		if sbxerr.Of(err) != tc.code || !strings.Contains(err.Error(), tc.want) || !strings.Contains(sbxerr.RemedyOf(err), tc.remedy) || rest != nil {
			t.Errorf("%.60q: %v (%s), want %s %q", tc.answer, err, sbxerr.RemedyOf(err), tc.code, tc.want)
		}
		said := fmt.Sprint(err, policy.DenialOf(err))
		if strings.Contains(said, "s3cr") || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte(secret))) {
			t.Errorf("it shows credentials: %s", said)
		}
		if told := policy.DenialOf(err).String(); strings.Contains(told, "proxy.corp") {
			t.Errorf("the sandbox is told where the proxy is: %s", told)
		}
	}
}

// A proxy that gives no answer does not hold anybody.
func TestConnectBroken(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(net.Conn){
		"closes at once": func(net.Conn) {},
		"closes amid the head": func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nVia:")
		},
		"never answers": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"answers a byte at a time": func(c net.Conn) {
			readHead(c)
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond) // a proxy that goes on for ever, slowly
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, err := open(t, Spec{URL: plain}, target, play)
			if sbxerr.Of(err) != sbxerr.EgressProxyDown || time.Since(begun) > 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	}
}

// A name that could hold a header of its own is never sent.
func TestNamesThatAreNone(t *testing.T) {
	for _, name := range []policy.Name{"a.example.com\r\nX: y", "A.example.com", "a.example.com:443 HTTP/1.1\r\n\r\n", "a b", "a.example.com.", "9.9.9.9"} {
		for _, url := range []string{plain, "socks5://proxy.corp:1080"} {
			heard := make(chan string, 1)
			_, err := open(t, Spec{URL: url}, Target{Name: name, Port: 443}, func(c net.Conn) {
				said, _ := io.ReadAll(io.LimitReader(c, 1))
				heard <- string(said)
			})
			if sbxerr.Of(err) != sbxerr.Internal {
				t.Errorf("%q: %v", name, err)
			}
			select {
			case said := <-heard:
				t.Errorf("%q: it was told %q", name, said)
			default:
			}
		}
	}
}

// socks plays a SOCKS5 proxy that wants the given authentication (0 is none), and
// answers with reply to what it is asked.
func socks(t testing.TB, method, reply byte, asked chan<- string) func(net.Conn) {
	return func(c net.Conn) {
		read := func(n byte) string {
			b := make([]byte, n)
			_, _ = io.ReadFull(c, b)
			return string(b)
		}
		write := func(b ...byte) { _, _ = c.Write(b) }
		if read(1) != "\x05" {
			t.Error("it is not asked in SOCKS5")
		}
		methods := read(read(1)[0])
		if !strings.Contains(methods, string(rune(method))) {
			write(5, 0xff)
			return
		}
		write(5, method)
		who := ""
		if method == 2 {
			read(1)
			who = read(read(1)[0])
			if who += "/" + read(read(1)[0]); who != "agent/s3cr:et" {
				write(1, 1)
				return
			}
			write(1, 0)
		}
		kind := read(4)[3]
		host := ""
		switch kind {
		case 1:
			host = netip.AddrFrom4([4]byte([]byte(read(4)))).String()
		case 3:
			host = read(read(1)[0])
		}
		port := read(2)
		asked <- fmt.Sprintf("%s %s:%d", who, host, int(port[0])<<8|int(port[1]))
		write(5, reply, 0, 1, 0, 0, 0, 0, 0, 0)
		_, _ = io.WriteString(c, "banner")
	}
}

func TestSOCKS(t *testing.T) {
	const url = "socks5://proxy.corp:1080"
	for _, tc := range []struct {
		to            Target
		credentials   string
		method, reply byte
		asked         string
		code          sbxerr.Code
		want          string
	}{
		{target, "", 0, 0, " a.example.com:443", "", ""},
		{target, secret, 2, 0, "agent/s3cr:et a.example.com:443", "", ""},
		{Target{Address: netip.MustParseAddr("9.9.9.9"), Port: 22}, secret, 0, 0, " 9.9.9.9:22", "", ""},
		{target, "", 2, 0, "", sbxerr.EgressProxy, "no acceptable authentication"},
		{target, "agent:wrong", 2, 0, "", sbxerr.EgressProxy, "authentication failed"},
		{target, secret, 0, 2, " a.example.com:443", sbxerr.EgressProxy, "does not connect to a.example.com:443: connection not allowed by ruleset"},
		{target, secret, 0, 4, " a.example.com:443", sbxerr.EgressProxy, "host unreachable"},
	} {
		asked := make(chan string, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		own, theirs := net.Pipe()
		defer func() { _ = own.Close() }()
		go socks(t, tc.method, tc.reply, asked)(theirs)
		_, err := compile(t, Spec{URL: url, Credentials: NewSecret(tc.credentials)}).Open(ctx, own, tc.to)
		if tc.code != "" {
			if sbxerr.Of(err) != tc.code || !strings.Contains(err.Error(), tc.want) || strings.Contains(fmt.Sprint(err), "s3cr") || strings.Contains(fmt.Sprint(err), "wrong") {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		rest := make([]byte, 6)
		_, readErr := io.ReadFull(own, rest)
		if got := <-asked; err != nil || got != tc.asked || string(rest) != "banner" || readErr != nil {
			t.Errorf("%+v: %v, %v, asked %q, then %q", tc, err, readErr, got, rest)
		}
	}
}

func TestSOCKSBroken(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(net.Conn){
		"closes at once": func(net.Conn) {},
		"speaks HTTP": func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 3))
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		},
		"never answers": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, err := open(t, Spec{URL: "socks5://proxy.corp:1080"}, target, play)
			if sbxerr.Of(err) != sbxerr.EgressProxyDown || time.Since(begun) > 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\n\r\nrest")
	f.Add("HTTP/1.1 407 x\r\nX: y\r\n\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		rest, err := open(t, Spec{URL: plain}, target, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, answer)
		})
		if err != nil {
			if code := sbxerr.Of(err); code != sbxerr.EgressProxy && code != sbxerr.EgressProxyDown {
				t.Errorf("%v", err)
			}
			return
		}
		if !strings.HasPrefix(answer, "HTTP/1.") || !strings.HasSuffix(answer, string(rest)) && len(answer) <= maxHead/8 {
			t.Errorf("%q was taken, %q kept", answer, rest)
		}
	})
}
