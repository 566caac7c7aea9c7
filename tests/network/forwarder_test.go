package network

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// forwarder is the proxy through which the world may leave. It has its own resolver, and
// remembers what it was asked.
type forwarder struct {
	listener net.Listener
	names    map[string]string // where a name is; others are forbidden

	mu    sync.Mutex
	asked []string
}

const (
	forwarderAt = "127.0.0.1:3128"
	credentials = "agent:s3cret-of-the-proxy"
)

// startForwarder serves at forwarderAt until t ends.
func startForwarder(t *testing.T, names map[string]string) *forwarder {
	t.Helper()
	f := &forwarder{names: names}
	err := host.ns.Do(func() (err error) {
		f.listener, err = net.Listen("tcp4", forwarderAt)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.stop)
	go f.serve()
	return f
}

func (f *forwarder) stop() { _ = f.listener.Close() }

func (f *forwarder) serve() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			f.forward(c)
			_ = c.Close()
		}()
	}
}

func (f *forwarder) forward(c net.Conn) {
	reader := bufio.NewReader(c)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	user, password, _ := (&http.Request{Header: http.Header{"Authorization": request.Header["Proxy-Authorization"]}}).BasicAuth()
	f.mu.Lock()
	f.asked = append(f.asked, request.Method+" "+request.RequestURI)
	f.mu.Unlock()
	name, port, _ := net.SplitHostPort(request.RequestURI)
	address, known := f.names[name]
	switch {
	case user+":"+password != credentials:
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
	case !known:
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\nnot from here")
	default:
		f.join(c, reader, net.JoinHostPort(address, port))
	}
}

// join dials as a control does, and carries all both ways.
func (f *forwarder) join(c net.Conn, heard io.Reader, address string) {
	var out net.Conn
	err := host.ns.Do(func() (err error) {
		out, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(control)}}).Dial("tcp4", address)
		return err
	})
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(out, heard)
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, out)
	_ = out.Close()
}

// take lists what was asked since the last call.
func (f *forwarder) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// proxied is a configuration of a daemon that leaves through the forwarder.
func proxied(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := fmt.Sprintf("{url: http://%s, credentials: file:%s, except: [near.example.org, 93.184.215.14/31]}", forwarderAt, path)
	return fmt.Sprintf("network: {dns: [%s], map: {mirror.example: %q}, upstream_proxy: %s}\n", resolver, mirror+":80", proxy)
}

// secrets are what nobody may read, however it is written.
func secrets() []string { return []string{strings.Split(credentials, ":")[1], "YWdlbnQ6czNjcmV0"} }
